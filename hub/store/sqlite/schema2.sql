-- "PRAGMA user_version" 2: who a cluster is.

-- A retired cluster is removed, and its agent is told so for good.
ALTER TABLE cluster ADD COLUMN retired_at     INTEGER;
ALTER TABLE cluster ADD COLUMN retired_reason TEXT NOT NULL DEFAULT '';
-- Since when two agents have shared this identity, as their reports show, and what shows it.
ALTER TABLE cluster ADD COLUMN shared_since INTEGER;
ALTER TABLE cluster ADD COLUMN shared_how   TEXT NOT NULL DEFAULT '';
-- Up to here reports show it no more: that has been seen to, by a person or a new key.
ALTER TABLE cluster ADD COLUMN cleared_incarnation INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cluster ADD COLUMN cleared_seq         INTEGER NOT NULL DEFAULT 0;

-- A key that the agent has replaced itself speaks for the reports up to this number. NULL for keys in
-- force, and for those that speak for nothing any more.
ALTER TABLE cluster_key ADD COLUMN until_incarnation INTEGER;
ALTER TABLE cluster_key ADD COLUMN until_seq         INTEGER;

-- Enrollment tokens. The private half of the key is the token's secret, which is not here.
CREATE TABLE token (
  id          TEXT    PRIMARY KEY,
  public_key  BLOB    NOT NULL, -- SubjectPublicKeyInfo, DER
  type        TEXT    NOT NULL,
  environment TEXT    NOT NULL, -- '' is any
  ring        TEXT    NOT NULL, -- '' is any
  labels      TEXT    NOT NULL, -- a JSON object of strings, given to each cluster
  uses        INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  expires_at  INTEGER NOT NULL,
  revoked_at  INTEGER
) STRICT, WITHOUT ROWID;

-- A key that comes again with the same token uses nothing up.
CREATE TABLE token_use (
  token_id TEXT    NOT NULL REFERENCES token (id),
  kid      TEXT    NOT NULL,
  uid      TEXT    NOT NULL,
  used_at  INTEGER NOT NULL,
  PRIMARY KEY (token_id, kid)
) STRICT, WITHOUT ROWID;

-- Which reports of an incarnation each process of an agent has made, by number. Processes follow one
-- another, so that two whose numbers interleave are two agents.
CREATE TABLE instance (
  cluster_id  INTEGER NOT NULL REFERENCES cluster (id),
  incarnation INTEGER NOT NULL,
  instance    TEXT    NOT NULL,
  first_seq   INTEGER NOT NULL,
  last_seq    INTEGER NOT NULL,
  PRIMARY KEY (cluster_id, incarnation, instance)
) STRICT, WITHOUT ROWID;
