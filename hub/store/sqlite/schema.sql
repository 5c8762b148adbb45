-- The hub's tables, as "PRAGMA user_version" 1. Times are milliseconds since 1970, UTC.
--
-- The present (cluster, deployment) follows the newest report by (incarnation, seq). History
-- (transition) only grows: for each assignment the value as of a report is that of its last row at or
-- before the report's (incarnation, seq), whatever order the reports arrived in.

CREATE TABLE cluster (
  id          INTEGER PRIMARY KEY,
  -- As registered. What the agent claims of itself is in claims and never changes these.
  uid         TEXT    NOT NULL UNIQUE,
  name        TEXT    NOT NULL,
  platform    TEXT    NOT NULL,
  type        TEXT    NOT NULL,
  environment TEXT    NOT NULL,
  ring        TEXT    NOT NULL,
  labels      TEXT    NOT NULL, -- a JSON object of strings
  expected    INTEGER NOT NULL, -- the longest usual time between two reports
  added_at    INTEGER NOT NULL,
  removed_at  INTEGER,          -- history outlives the registration
  -- As of the newest report.
  incarnation       INTEGER NOT NULL DEFAULT 0,
  seq               INTEGER NOT NULL DEFAULT 0,
  state             TEXT    NOT NULL DEFAULT '',
  reason            TEXT    NOT NULL DEFAULT '',
  message           TEXT    NOT NULL DEFAULT '',
  state_since       INTEGER NOT NULL DEFAULT 0,
  desired_digest    TEXT    NOT NULL DEFAULT '',
  desired_epoch     INTEGER NOT NULL DEFAULT 0,
  desired_sequence  INTEGER NOT NULL DEFAULT 0,
  observed_digest   TEXT    NOT NULL DEFAULT '',
  observed_epoch    INTEGER NOT NULL DEFAULT 0,
  observed_sequence INTEGER NOT NULL DEFAULT 0,
  expired           INTEGER NOT NULL DEFAULT 0, -- the running release's
  agent_version     TEXT    NOT NULL DEFAULT '',
  claims            TEXT    NOT NULL DEFAULT '', -- the report's "cluster", as JSON
  last_seen         INTEGER,                     -- NULL before the first report
  -- Reports refused because another one with their number is stored: two agents share an identity.
  conflicts         INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX cluster_name ON cluster (name) WHERE removed_at IS NULL;
CREATE INDEX cluster_place ON cluster (environment, type, state);

CREATE TABLE cluster_key (
  cluster_id INTEGER NOT NULL REFERENCES cluster (id),
  kid        TEXT    NOT NULL, -- bundle.KeyID
  public_key BLOB    NOT NULL, -- SubjectPublicKeyInfo, DER
  revoked_at INTEGER,
  PRIMARY KEY (cluster_id, kid)
) STRICT;
-- A key speaks for one cluster.
CREATE UNIQUE INDEX cluster_key_in_use ON cluster_key (kid) WHERE revoked_at IS NULL;

CREATE TABLE deployment (
  cluster_id INTEGER NOT NULL REFERENCES cluster (id),
  assignment TEXT    NOT NULL,
  workspace  TEXT    NOT NULL,
  workload   TEXT    NOT NULL,
  target     TEXT    NOT NULL,
  adapter    TEXT    NOT NULL,
  state      TEXT    NOT NULL,
  reason     TEXT    NOT NULL,
  message    TEXT    NOT NULL,
  since      INTEGER NOT NULL,
  version    TEXT    NOT NULL,
  config     TEXT    NOT NULL, -- digest of the composed configuration
  content    TEXT    NOT NULL, -- digest of the assignment's files
  revision   TEXT    NOT NULL,
  floating   INTEGER NOT NULL,
  listed     INTEGER NOT NULL, -- whether the newest report lists it
  PRIMARY KEY (cluster_id, assignment)
) STRICT, WITHOUT ROWID;
CREATE INDEX deployment_workload ON deployment (workload, state) WHERE listed = 1;

CREATE TABLE report (
  id          TEXT    PRIMARY KEY, -- bundle.ReportID
  cluster_id  INTEGER NOT NULL REFERENCES cluster (id),
  incarnation INTEGER NOT NULL,
  seq         INTEGER NOT NULL,
  kind        TEXT    NOT NULL,
  occurred_at INTEGER NOT NULL, -- the agent's clock
  received_at INTEGER NOT NULL,
  via         TEXT    NOT NULL, -- http, media or registry
  kid         TEXT    NOT NULL,
  ack_owed    INTEGER NOT NULL, -- it came by media and no acknowledgement has been exported since
  UNIQUE (cluster_id, incarnation, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX report_ack_owed ON report (cluster_id, incarnation, seq) WHERE ack_owed = 1;

CREATE TABLE transition (
  id          INTEGER PRIMARY KEY,
  cluster_id  INTEGER NOT NULL REFERENCES cluster (id),
  assignment  TEXT    NOT NULL, -- '' is the agent as a whole
  incarnation INTEGER NOT NULL,
  seq         INTEGER NOT NULL,
  state       TEXT    NOT NULL,
  reason      TEXT    NOT NULL,
  version     TEXT    NOT NULL,
  config      TEXT    NOT NULL,
  content     TEXT    NOT NULL, -- for the agent as a whole the digest of the running release
  revision    TEXT    NOT NULL,
  occurred_at INTEGER NOT NULL,
  received_at INTEGER NOT NULL,
  report_id   TEXT    NOT NULL REFERENCES report (id),
  UNIQUE (cluster_id, assignment, incarnation, seq)
) STRICT;
