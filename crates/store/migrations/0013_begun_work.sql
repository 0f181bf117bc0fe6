-- Work that a daemon has begun, until a daemon lives through it. An older daemon that has the file open does not count.

CREATE TABLE begun_work (
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    starts INTEGER NOT NULL,
    PRIMARY KEY (kind, subject)
) STRICT, WITHOUT ROWID;
