-- Step 3 of the schema: decisions about promotion.
CREATE TABLE decision (
    digest      TEXT COLLATE "C" PRIMARY KEY,
    platform    TEXT COLLATE "C" NOT NULL,
    environment TEXT COLLATE "C" NOT NULL,
    issued_at   BIGINT NOT NULL,
    seen_at     BIGINT NOT NULL,
    own         BIGINT NOT NULL,
    envelope    BYTEA NOT NULL
);
CREATE INDEX decision_place ON decision (environment, platform, issued_at);
