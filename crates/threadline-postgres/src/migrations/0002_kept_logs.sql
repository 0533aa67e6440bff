-- Logs from before a repair, each as its session had it.
CREATE TABLE kept_logs (
    session text NOT NULL,
    -- Counts the repairs of the session.
    generation integer NOT NULL,
    kept_at timestamptz NOT NULL,
    next_seq bigint NOT NULL,
    bytes bigint NOT NULL,
    acknowledged bigint,
    PRIMARY KEY (session, generation)
);

CREATE TABLE kept_segments (
    session text NOT NULL,
    generation integer NOT NULL,
    ordinal integer NOT NULL,
    segment bigint NOT NULL,
    first_seq bigint NOT NULL,
    -- NULL for the segment that was the session's own: all of it is kept.
    last_seq bigint,
    start_at bigint NOT NULL,
    PRIMARY KEY (session, generation, ordinal)
);
CREATE INDEX kept_segments_segment ON kept_segments (segment);

-- For people: SELECT line FROM quarantine WHERE session = '…' AND generation = 1 ORDER BY at
CREATE VIEW quarantine AS
SELECT k.session, k.generation, k.start_at AS at, s.header_line AS line
FROM kept_segments k JOIN segments s ON s.id = k.segment
UNION ALL
SELECT k.session, k.generation, e.at, e.body
FROM kept_segments k JOIN events e ON e.segment_id = k.segment
    AND e.seq >= k.first_seq AND (k.last_seq IS NULL OR e.seq <= k.last_seq);
