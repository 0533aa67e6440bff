-- The head of each session. Kept narrow, because every append rewrites it.
CREATE TABLE sessions (
    id text PRIMARY KEY,
    -- The segment that its own events go to.
    segment bigint NOT NULL,
    next_seq bigint NOT NULL,
    -- Bytes of its log: where the next line begins.
    next_at bigint NOT NULL,
    -- Last event known to be durable.
    acknowledged bigint,
    -- Counts the writers; only the newest may append.
    epoch bigint NOT NULL,
    holder text,
    lease_until timestamptz,
    summary text NOT NULL,
    revision bigint NOT NULL,
    -- Counts the changes of the summary.
    people bigint NOT NULL,
    -- Whether its row in the catalogue may be stale.
    suspect boolean NOT NULL DEFAULT true
) WITH (fillfactor = 70);
CREATE INDEX sessions_suspect ON sessions (id) WHERE suspect;

-- A run of events behind one header line. Forks share those of their parents.
CREATE TABLE segments (
    id bigint PRIMARY KEY,
    header_line text NOT NULL
);

CREATE TABLE session_segments (
    session text NOT NULL,
    ordinal integer NOT NULL,
    segment bigint NOT NULL,
    first_seq bigint NOT NULL,
    -- NULL for the session's own.
    last_seq bigint,
    -- Where the header line begins in the session's log.
    start_at bigint NOT NULL,
    PRIMARY KEY (session, ordinal)
);
CREATE INDEX session_segments_segment ON session_segments (segment);

-- The lines, byte for byte without LF. Never jsonb, which would rewrite them.
CREATE TABLE events (
    segment_id bigint NOT NULL,
    seq bigint NOT NULL,
    -- Where the line begins in the whole log.
    at bigint NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (segment_id, seq)
) PARTITION BY HASH (segment_id);
CREATE TABLE events_0 PARTITION OF events FOR VALUES WITH (MODULUS 8, REMAINDER 0);
CREATE TABLE events_1 PARTITION OF events FOR VALUES WITH (MODULUS 8, REMAINDER 1);
CREATE TABLE events_2 PARTITION OF events FOR VALUES WITH (MODULUS 8, REMAINDER 2);
CREATE TABLE events_3 PARTITION OF events FOR VALUES WITH (MODULUS 8, REMAINDER 3);
CREATE TABLE events_4 PARTITION OF events FOR VALUES WITH (MODULUS 8, REMAINDER 4);
CREATE TABLE events_5 PARTITION OF events FOR VALUES WITH (MODULUS 8, REMAINDER 5);
CREATE TABLE events_6 PARTITION OF events FOR VALUES WITH (MODULUS 8, REMAINDER 6);
CREATE TABLE events_7 PARTITION OF events FOR VALUES WITH (MODULUS 8, REMAINDER 7);

CREATE TABLE checkpoints (
    session text NOT NULL,
    seq bigint NOT NULL,
    hint bigint NOT NULL,
    crc bigint NOT NULL,
    state bytea NOT NULL,
    PRIMARY KEY (session, seq)
);

CREATE TABLE blobs (
    id text PRIMARY KEY,
    bytes bytea NOT NULL,
    put_at bigint NOT NULL
);

-- What lists show. Derived: it may be emptied at any time.
CREATE TABLE catalogue (
    id text COLLATE "C" PRIMARY KEY,
    updated_at bigint NOT NULL,
    archived boolean NOT NULL,
    pinned boolean NOT NULL,
    cwd text NOT NULL,
    parent text,
    status text NOT NULL,
    search text NOT NULL,
    -- The session as it was when the row was made.
    bytes bigint NOT NULL,
    segment bigint NOT NULL,
    people bigint NOT NULL,
    -- Whether somebody was writing it then.
    written boolean NOT NULL,
    row_json text NOT NULL
);
CREATE INDEX catalogue_order ON catalogue (updated_at DESC, id DESC);
