-- Step 4 of the schema: the audit log is chained by digest, and tokens may wait. The log begins anew: entries of before have none.
DROP TABLE audit;
CREATE TABLE audit (
  position    BIGINT PRIMARY KEY, -- 1, 2, 3 and so on
  digest      TEXT   COLLATE "C" NOT NULL, -- store.AuditEntry.Chained
  at          BIGINT NOT NULL,
  actor       TEXT   COLLATE "C" NOT NULL,
  action      TEXT   COLLATE "C" NOT NULL,
  object      TEXT   COLLATE "C" NOT NULL,
  reason      TEXT   COLLATE "C" NOT NULL,
  detail      TEXT   COLLATE "C" NOT NULL,
  environment TEXT   COLLATE "C" NOT NULL,
  workspace   TEXT   COLLATE "C" NOT NULL
);

-- The newest entry, in one row, so that entries that are missing at the end are missed too.
CREATE TABLE audit_head (
  id       BIGINT PRIMARY KEY CHECK (id = 1),
  position BIGINT NOT NULL,
  digest   TEXT   COLLATE "C" NOT NULL
);

-- 1 for a token of a restored backup that nobody has accepted yet: it may have been revoked since the backup.
ALTER TABLE access_token ADD COLUMN waits BIGINT NOT NULL DEFAULT 0;
ALTER TABLE token ADD COLUMN waits BIGINT NOT NULL DEFAULT 0;

-- What the hub writes to see whether there is room.
CREATE TABLE probe (
  id      BIGINT PRIMARY KEY,
  content BYTEA  NOT NULL
);

-- Decisions that the hub has not signed are bounded, and counted with each that comes.
CREATE INDEX decision_others ON decision (environment, platform) WHERE own = 0;
