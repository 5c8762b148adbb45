-- "PRAGMA user_version" 8: decisions about promotion.
CREATE TABLE decision (
    digest      TEXT NOT NULL PRIMARY KEY,
    platform    TEXT NOT NULL,
    environment TEXT NOT NULL,
    issued_at   INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL,
    own         INTEGER NOT NULL,
    envelope    BLOB NOT NULL
) STRICT;
CREATE INDEX decision_place ON decision (environment, platform, issued_at);
