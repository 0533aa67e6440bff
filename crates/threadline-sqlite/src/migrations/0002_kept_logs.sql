-- Logs from before a repair, each as its session had it.
CREATE TABLE kept_logs (
    session      INTEGER NOT NULL REFERENCES sessions (num),
    -- Counts the repairs of the session.
    generation   INTEGER NOT NULL,
    -- When it was replaced, unix milliseconds.
    kept_at      INTEGER NOT NULL,
    next_seq     INTEGER NOT NULL,
    bytes        INTEGER NOT NULL,
    acknowledged INTEGER,
    PRIMARY KEY (session, generation)
) STRICT, WITHOUT ROWID;

CREATE TABLE kept_segments (
    session    INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    ordinal    INTEGER NOT NULL,
    segment    INTEGER NOT NULL REFERENCES segments (num),
    -- Last event of it that belongs to the log; NULL for the one that was the session's own, of
    -- which all is kept.
    last_seq   INTEGER,
    PRIMARY KEY (session, generation, ordinal),
    FOREIGN KEY (session, generation) REFERENCES kept_logs (session, generation)
) STRICT, WITHOUT ROWID;
CREATE INDEX kept_segments_segment ON kept_segments (segment);

-- For people: SELECT line FROM quarantine WHERE session = '…' AND generation = 1 ORDER BY at
CREATE VIEW quarantine AS
SELECT s.id AS session, k.generation, g.start AS at, g.header AS line
FROM kept_segments k JOIN sessions s ON s.num = k.session JOIN segments g ON g.num = k.segment
UNION ALL
SELECT s.id, k.generation, e.at, e.body
FROM kept_segments k JOIN sessions s ON s.num = k.session JOIN events e ON e.segment = k.segment
WHERE k.last_seq IS NULL OR e.seq <= k.last_seq;
