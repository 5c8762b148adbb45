-- "PRAGMA user_version" 6: what the fleet is meant to run, who may use the hub, which hub the database is of, and quotas.

-- Releases whose signatures were verified. They are never changed and never removed.
CREATE TABLE published_release (
  digest      TEXT    PRIMARY KEY, -- of the manifest
  platform    TEXT    NOT NULL,
  environment TEXT    NOT NULL,
  type        TEXT    NOT NULL,
  epoch       INTEGER NOT NULL,
  sequence    INTEGER NOT NULL,
  issued_at   INTEGER NOT NULL,
  seen_at     INTEGER NOT NULL,
  head        BLOB    NOT NULL, -- the release document and who signed it, as JSON
  contents    BLOB    NOT NULL  -- its assignments and artifacts, as JSON, compressed
) STRICT;
CREATE INDEX published_release_stream ON published_release (platform, environment, type, epoch, sequence);

-- Environment records whose signatures were verified: which release of each cluster type is the newest.
CREATE TABLE published_record (
  digest      TEXT    PRIMARY KEY,
  platform    TEXT    NOT NULL,
  environment TEXT    NOT NULL,
  epoch       INTEGER NOT NULL,
  sequence    INTEGER NOT NULL,
  issued_at   INTEGER NOT NULL,
  seen_at     INTEGER NOT NULL,
  body        BLOB    NOT NULL -- the record and who signed it, as JSON
) STRICT;
CREATE INDEX published_record_place ON published_record (platform, environment, epoch, sequence);

-- Tokens by which people and machines use the hub. Secrets are not here. Times are 0 for never.
CREATE TABLE access_token (
  id         TEXT    PRIMARY KEY,
  hash       BLOB    NOT NULL, -- SHA-256 of the secret
  name       TEXT    NOT NULL,
  role       TEXT    NOT NULL,
  scope      TEXT    NOT NULL, -- store.AccessScope, as JSON
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  revoked_at INTEGER NOT NULL,
  used_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX access_token_name ON access_token (name);

-- Writes and overrides, and who did them. Rows are only added.
CREATE TABLE audit (
  position    INTEGER PRIMARY KEY AUTOINCREMENT,
  at          INTEGER NOT NULL,
  actor       TEXT    NOT NULL,
  action      TEXT    NOT NULL,
  object      TEXT    NOT NULL,
  reason      TEXT    NOT NULL,
  detail      TEXT    NOT NULL,
  environment TEXT    NOT NULL,
  workspace   TEXT    NOT NULL
) STRICT;

-- The hub that the database belongs to: one row, with the id of its key.
CREATE TABLE owner (
  id  INTEGER PRIMARY KEY CHECK (id = 1),
  kid TEXT    NOT NULL
) STRICT;

-- When a cluster has all of its quota again, in microseconds since 1970.
ALTER TABLE cluster ADD COLUMN spent_reports INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cluster ADD COLUMN spent_bytes   INTEGER NOT NULL DEFAULT 0;

-- How long, in milliseconds, a cluster that a token registers may be silent before it is retired; 0 for ever.
ALTER TABLE token ADD COLUMN ephemeral INTEGER NOT NULL DEFAULT 0;

-- Clusters that such tokens have registered. A person who registers, retires or removes a cluster ends that.
CREATE TABLE ephemeral (
  cluster_id INTEGER PRIMARY KEY REFERENCES cluster (id),
  token_id   TEXT    NOT NULL REFERENCES token (id),
  lasts      INTEGER NOT NULL, -- as token.ephemeral
  since      INTEGER NOT NULL, -- when the token registered it
  silenced   INTEGER NOT NULL  -- 1 while it is retired for its silence
) STRICT;
