-- Who may hold sessions: one row for each open backend that writes.
CREATE TABLE holders (
    num     INTEGER PRIMARY KEY AUTOINCREMENT,
    pid     INTEGER NOT NULL,
    -- When the process began, in ticks since the machine did: tells it from a later one with its pid.
    started INTEGER NOT NULL,
    host    TEXT    NOT NULL,
    -- Boot of the machine, and the process namespace that the pid belongs to.
    boot    TEXT    NOT NULL,
    space   TEXT    NOT NULL,
    -- Last sign of life, unix milliseconds. Counts only where the process itself cannot be looked at.
    beat    INTEGER NOT NULL
) STRICT;

CREATE TABLE imports (
    num    INTEGER PRIMARY KEY AUTOINCREMENT,
    holder INTEGER REFERENCES holders (num) ON DELETE SET NULL,
    lease  INTEGER NOT NULL
) STRICT;

-- A header line and the events behind it. Sessions share them: a fork names its parent's segments
-- up to an event, and begins one of its own.
CREATE TABLE segments (
    num       INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The line without its LF; a BLOB when it is no UTF-8.
    header    ANY     NOT NULL,
    -- Where the header line begins in every log that holds the segment, in bytes.
    start     INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    -- The import that it belongs to, as long as that is not finished.
    import    INTEGER REFERENCES imports (num)
) STRICT;
CREATE INDEX segments_import ON segments (import) WHERE import IS NOT NULL;

CREATE TABLE sessions (
    -- Never used twice, so that a session made again under an old id has stamps of its own.
    num          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT    NOT NULL UNIQUE,
    -- The segment that appends go to.
    segment      INTEGER NOT NULL REFERENCES segments (num),
    -- Counts the writers; only the newest may append.
    epoch        INTEGER NOT NULL,
    next_seq     INTEGER NOT NULL,
    -- Length of the whole log.
    bytes        INTEGER NOT NULL,
    acknowledged INTEGER,
    holder       INTEGER REFERENCES holders (num) ON DELETE SET NULL,
    -- Which of the holder's writers, and since when.
    lease        INTEGER NOT NULL,
    since        INTEGER NOT NULL,
    -- Last append, unix milliseconds.
    touched      INTEGER NOT NULL,
    -- What people set, as JSON, its revision, and how often it was put.
    summary      TEXT,
    revision     INTEGER NOT NULL DEFAULT 0,
    people       INTEGER NOT NULL DEFAULT 0,
    -- Whether the row of the catalogue is that of the log and of what people set as they are now.
    listed       INTEGER NOT NULL DEFAULT 0
) STRICT;
-- By a number that never changes, so that an append to a suspect leaves it alone.
CREATE INDEX sessions_suspect ON sessions (num) WHERE listed = 0 OR holder IS NOT NULL;
CREATE INDEX sessions_holder ON sessions (holder) WHERE holder IS NOT NULL;

CREATE TABLE session_segments (
    session  INTEGER NOT NULL REFERENCES sessions (num),
    ordinal  INTEGER NOT NULL,
    segment  INTEGER NOT NULL REFERENCES segments (num),
    -- Last event of it that belongs to the session; NULL for the session's own segment.
    last_seq INTEGER,
    PRIMARY KEY (session, ordinal)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_segments_segment ON session_segments (segment);

-- A rowid table with an index: two to three times faster to write than one clustered by its key.
CREATE TABLE events (
    num     INTEGER PRIMARY KEY,
    segment INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    -- Where the line begins in every log that holds it, in bytes.
    at      INTEGER NOT NULL,
    -- The line without its LF; a BLOB when it is no UTF-8.
    body    ANY     NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_place ON events (segment, seq);

CREATE TABLE checkpoints (
    num     INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (num),
    seq     INTEGER NOT NULL,
    hint    INTEGER NOT NULL,
    crc     INTEGER NOT NULL,
    state   BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX checkpoints_place ON checkpoints (session, seq);

-- The bytes stand apart, so that putting a blob again or listing blobs does not touch them.
CREATE TABLE blobs (
    num    INTEGER PRIMARY KEY AUTOINCREMENT,
    id     TEXT    NOT NULL UNIQUE,
    size   INTEGER NOT NULL,
    put_at INTEGER NOT NULL
) STRICT;
CREATE TABLE blob_bytes (
    blob  INTEGER PRIMARY KEY REFERENCES blobs (num) ON DELETE CASCADE,
    bytes BLOB    NOT NULL
) STRICT;
