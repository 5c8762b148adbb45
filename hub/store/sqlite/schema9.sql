-- "PRAGMA user_version" 9: the audit log is chained by digest, and tokens may wait. The log begins anew: entries of before have none.
DROP TABLE audit;
CREATE TABLE audit (
  position    INTEGER PRIMARY KEY, -- 1, 2, 3 and so on
  digest      TEXT    NOT NULL,    -- store.AuditEntry.Chained
  at          INTEGER NOT NULL,
  actor       TEXT    NOT NULL,
  action      TEXT    NOT NULL,
  object      TEXT    NOT NULL,
  reason      TEXT    NOT NULL,
  detail      TEXT    NOT NULL,
  environment TEXT    NOT NULL,
  workspace   TEXT    NOT NULL
) STRICT;

-- The newest entry, in one row, so that entries that are missing at the end are missed too.
CREATE TABLE audit_head (
  id       INTEGER PRIMARY KEY CHECK (id = 1),
  position INTEGER NOT NULL,
  digest   TEXT    NOT NULL
) STRICT;

-- 1 for a token of a restored backup that nobody has accepted yet: it may have been revoked since the backup.
ALTER TABLE access_token ADD COLUMN waits INTEGER NOT NULL DEFAULT 0;
ALTER TABLE token ADD COLUMN waits INTEGER NOT NULL DEFAULT 0;

-- What the hub writes to see whether there is room.
CREATE TABLE probe (
  id      INTEGER PRIMARY KEY,
  content BLOB    NOT NULL
) STRICT;

-- Decisions that the hub has not signed are bounded, and counted with each that comes.
CREATE INDEX decision_others ON decision (environment, platform) WHERE own = 0;
