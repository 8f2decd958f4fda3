-- One row of counters: the place of the record stored last, the highest place that retention
-- removed, and how many records are kept.
CREATE TABLE archive (
    cursor  INTEGER NOT NULL,
    removed INTEGER NOT NULL,
    records INTEGER NOT NULL
) STRICT;
INSERT INTO archive VALUES (0, 0, 0);

CREATE TABLE origin (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

-- Every sequence ever stored, as runs without a gap.
CREATE TABLE held (
    origin INTEGER NOT NULL,
    first  INTEGER NOT NULL,
    last   INTEGER NOT NULL,
    PRIMARY KEY (origin, first)
) STRICT, WITHOUT ROWID;

CREATE TABLE series (
    id       INTEGER PRIMARY KEY,
    source   TEXT NOT NULL,
    target   TEXT NOT NULL,
    quantity TEXT NOT NULL,
    UNIQUE (source, target, quantity)
) STRICT;

-- Keyed so that a series' history, and its newest record, is one range of neighbouring rows.
CREATE TABLE record (
    series       INTEGER NOT NULL,
    time_unix_ns INTEGER NOT NULL,
    cursor       INTEGER NOT NULL,
    origin       INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    value        REAL,             -- NULL = the experiment failed
    failure      TEXT,
    after_s      REAL,
    detail       TEXT NOT NULL,
    PRIMARY KEY (series, time_unix_ns, cursor)
) STRICT, WITHOUT ROWID;

-- The order of arrival, for subscriptions, export and retention by size.
CREATE UNIQUE INDEX record_cursor ON record (cursor);

-- For people with another tool.
CREATE VIEW measurement AS
SELECT source, target, quantity, time_unix_ns / 1e9 AS time_s, value, failure, after_s, detail
FROM record JOIN series ON series.id = record.series;
