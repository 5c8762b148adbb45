-- The hub's tables, as "PRAGMA user_version" 1. Times are milliseconds since 1970, UTC, where nothing else is said.
--
-- The present (cluster, deployment) follows the newest report by (incarnation, seq). History (transition) only grows: for each
-- assignment the value as of a report is that of its last row at or before the report's (incarnation, seq), whatever order the
-- reports arrived in.

CREATE TABLE cluster (
  id          INTEGER PRIMARY KEY,
  -- As registered. What the agent claims of itself is in about and never changes these.
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
  incarnation     INTEGER NOT NULL DEFAULT 0,
  seq             INTEGER NOT NULL DEFAULT 0,
  state           TEXT    NOT NULL DEFAULT '',
  reason          TEXT    NOT NULL DEFAULT '',
  message         TEXT    NOT NULL DEFAULT '',
  state_since     INTEGER NOT NULL DEFAULT 0,
  observed_digest TEXT    NOT NULL DEFAULT '',
  last_seen       INTEGER,                     -- NULL before the first report
  -- Reports refused because another one with their number is stored: two agents share an identity.
  conflicts       INTEGER NOT NULL DEFAULT 0,
  -- A retired cluster is removed, and its agent is told so for good.
  retired_at      INTEGER,
  retired_reason  TEXT    NOT NULL DEFAULT '',
  -- Since when two agents have shared this identity, as their reports show, and what shows it.
  shared_since    INTEGER,
  shared_how      TEXT    NOT NULL DEFAULT '',
  -- Up to here reports show it no more: that has been seen to, by a person or a new key.
  cleared_incarnation INTEGER NOT NULL DEFAULT 0,
  cleared_seq     INTEGER NOT NULL DEFAULT 0,
  -- The newest change of the feed; the newest report; and whether the times of reports have ever fallen.
  change          INTEGER NOT NULL DEFAULT 0,
  about_id        INTEGER,
  report_id       BLOB,
  occurred_at     INTEGER NOT NULL DEFAULT 0,
  received_at     INTEGER NOT NULL DEFAULT 0,
  via             TEXT    NOT NULL DEFAULT '',
  fell            INTEGER NOT NULL DEFAULT 0,
  -- Retention has removed the reports before this one.
  kept_incarnation INTEGER NOT NULL DEFAULT 0,
  kept_seq        INTEGER NOT NULL DEFAULT 0,
  -- When the cluster has all of its quota again, in microseconds since 1970.
  spent_reports   INTEGER NOT NULL DEFAULT 0,
  spent_bytes     INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX cluster_name ON cluster (name) WHERE removed_at IS NULL;

CREATE TABLE cluster_key (
  cluster_id INTEGER NOT NULL REFERENCES cluster (id),
  kid        TEXT    NOT NULL, -- bundle.KeyID
  public_key BLOB    NOT NULL, -- SubjectPublicKeyInfo, DER
  revoked_at INTEGER,
  -- A key that the agent has replaced itself speaks for the reports up to this number. NULL for keys in force, and for those that
  -- speak for nothing any more.
  until_incarnation INTEGER,
  until_seq         INTEGER,
  PRIMARY KEY (cluster_id, kid)
) STRICT;
-- A key speaks for one cluster.
CREATE UNIQUE INDEX cluster_key_in_use ON cluster_key (kid) WHERE revoked_at IS NULL;

-- All changes, by the order of their commits. A position is never used again: the newest row is never removed.
CREATE TABLE feed (
  position    INTEGER PRIMARY KEY,
  at          INTEGER NOT NULL,
  kind        TEXT    NOT NULL, -- store.FeedKind
  cluster_id  INTEGER,
  platform    TEXT    NOT NULL DEFAULT '',
  environment TEXT    NOT NULL DEFAULT '',
  digest      TEXT    NOT NULL DEFAULT '',
  -- The first and last new report of a batch, and their number.
  first_incarnation INTEGER NOT NULL DEFAULT 0,
  first_seq         INTEGER NOT NULL DEFAULT 0,
  last_incarnation  INTEGER NOT NULL DEFAULT 0,
  last_seq          INTEGER NOT NULL DEFAULT 0,
  -- The envelopes of the batch, compressed; NULL once retention has removed them.
  body BLOB
) STRICT;
CREATE INDEX feed_body ON feed (at, position) WHERE body IS NOT NULL;

-- Up to where retention has removed rows: "feed" is a position, "history" a time.
CREATE TABLE horizon (
  name  TEXT    PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What a cluster was registered as, and when; until is NULL for what is in force.
CREATE TABLE identity (
  cluster_id  INTEGER NOT NULL,
  since       INTEGER NOT NULL,
  until       INTEGER,
  name        TEXT    NOT NULL,
  platform    TEXT    NOT NULL,
  type        TEXT    NOT NULL,
  environment TEXT    NOT NULL,
  ring        TEXT    NOT NULL,
  expected    INTEGER NOT NULL,
  PRIMARY KEY (cluster_id, since)
) STRICT, WITHOUT ROWID;

CREATE TABLE label (
  cluster_id INTEGER NOT NULL,
  key        TEXT    NOT NULL,
  since      INTEGER NOT NULL,
  until      INTEGER,
  value      TEXT    NOT NULL,
  PRIMARY KEY (cluster_id, key, since)
) STRICT, WITHOUT ROWID;
CREATE INDEX label_value ON label (key, value) WHERE until IS NULL;

-- What reports say of an agent beside its state, as JSON (timeline.About). It changes seldom.
CREATE TABLE about (
  id         INTEGER PRIMARY KEY,
  cluster_id INTEGER NOT NULL,
  content    TEXT    NOT NULL
) STRICT;
CREATE INDEX about_cluster ON about (cluster_id);

-- Reports by their place. The id is 32 bytes, and position and part are where the envelope is; part is -1 without one.
CREATE TABLE report (
  cluster_id  INTEGER NOT NULL,
  incarnation INTEGER NOT NULL,
  seq         INTEGER NOT NULL,
  id          BLOB    NOT NULL, -- bundle.ReportID
  kind        TEXT    NOT NULL,
  occurred_at INTEGER NOT NULL, -- the agent's clock
  received_at INTEGER NOT NULL,
  time        INTEGER NOT NULL, -- the earlier of the two
  via         TEXT    NOT NULL, -- http, media or registry
  kid         TEXT    NOT NULL,
  ack_owed    INTEGER NOT NULL, -- it came by media and no acknowledgement has been exported since
  position    INTEGER NOT NULL,
  part        INTEGER NOT NULL,
  PRIMARY KEY (cluster_id, incarnation, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX report_time ON report (cluster_id, time);
CREATE INDEX report_ack_owed ON report (cluster_id, incarnation, seq) WHERE ack_owed = 1;
CREATE INDEX report_owed_id ON report (id) WHERE ack_owed = 1;

-- The present. A deployment keeps its row for ever, whether the newest report lists it or not, for the history of it; the one
-- whose assignment is empty is the agent as a whole, and never listed.
CREATE TABLE deployment (
  id          INTEGER PRIMARY KEY,
  cluster_id  INTEGER NOT NULL,
  assignment  TEXT    NOT NULL,
  workspace   TEXT    NOT NULL,
  application TEXT    NOT NULL,
  workload    TEXT    NOT NULL,
  target      TEXT    NOT NULL,
  adapter     TEXT    NOT NULL,
  state       TEXT    NOT NULL,
  reason      TEXT    NOT NULL,
  message     TEXT    NOT NULL,
  since       INTEGER NOT NULL, -- the agent's clock
  version     TEXT    NOT NULL,
  config      TEXT    NOT NULL, -- digest of the composed configuration
  content     TEXT    NOT NULL, -- digest of the assignment's files
  revision    TEXT    NOT NULL,
  site_values TEXT    NOT NULL, -- digest of the site values
  -- How often the assignment has begun to fail, by its agent's count; 0 of agents that do not count. Reports in between may never
  -- arrive, and the difference of two counts tells how many failures they told of.
  failures    INTEGER NOT NULL,
  floating    INTEGER NOT NULL,
  listed      INTEGER NOT NULL, -- whether the newest report lists it
  UNIQUE (cluster_id, assignment)
) STRICT;
CREATE INDEX deployment_workload ON deployment (workload);

-- For each deployment a row at each report that has changed it. about_id is NULL but in those of agents as a whole.
CREATE TABLE transition (
  deployment_id INTEGER NOT NULL,
  incarnation   INTEGER NOT NULL,
  seq           INTEGER NOT NULL,
  time          INTEGER NOT NULL, -- of the report
  state         TEXT    NOT NULL,
  reason        TEXT    NOT NULL,
  version       TEXT    NOT NULL,
  config        TEXT    NOT NULL,
  content       TEXT    NOT NULL, -- for the agent as a whole the digest of the running release
  revision      TEXT    NOT NULL,
  site_values   TEXT    NOT NULL,
  failures      INTEGER NOT NULL,
  since         INTEGER NOT NULL,
  about_id      INTEGER,
  PRIMARY KEY (deployment_id, incarnation, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX transition_time ON transition (time);
CREATE INDEX transition_failed ON transition (time) WHERE state = 'failed';

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
  revoked_at  INTEGER,
  -- How long, in milliseconds, a cluster that the token registers may be silent before it is retired; 0 for ever.
  ephemeral   INTEGER NOT NULL DEFAULT 0,
  waits       INTEGER NOT NULL DEFAULT 0 -- as access_token.waits
) STRICT, WITHOUT ROWID;

-- Clusters that such tokens have registered. A person who registers, retires or removes a cluster ends that.
CREATE TABLE ephemeral (
  cluster_id INTEGER PRIMARY KEY REFERENCES cluster (id),
  token_id   TEXT    NOT NULL REFERENCES token (id),
  lasts      INTEGER NOT NULL, -- as token.ephemeral
  since      INTEGER NOT NULL, -- when the token registered it
  silenced   INTEGER NOT NULL  -- 1 while it is retired for its silence
) STRICT;

-- A key that comes again with the same token uses nothing up.
CREATE TABLE token_use (
  token_id TEXT    NOT NULL REFERENCES token (id),
  kid      TEXT    NOT NULL,
  uid      TEXT    NOT NULL,
  used_at  INTEGER NOT NULL,
  PRIMARY KEY (token_id, kid)
) STRICT, WITHOUT ROWID;

-- Which reports of an incarnation each process of an agent has made, by number. Processes follow one another, so that two whose
-- numbers interleave are two agents.
CREATE TABLE instance (
  cluster_id  INTEGER NOT NULL REFERENCES cluster (id),
  incarnation INTEGER NOT NULL,
  instance    TEXT    NOT NULL,
  first_seq   INTEGER NOT NULL,
  last_seq    INTEGER NOT NULL,
  PRIMARY KEY (cluster_id, incarnation, instance)
) STRICT, WITHOUT ROWID;

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

-- Tokens by which people and machines use the hub, and sessions of people who signed in. Secrets are not here. Times are 0 for never.
CREATE TABLE access_token (
  id         TEXT    PRIMARY KEY,
  hash       BLOB    NOT NULL, -- SHA-256 of the secret
  name       TEXT    NOT NULL,
  role       TEXT    NOT NULL,
  scope      TEXT    NOT NULL, -- store.AccessScope, as JSON
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  revoked_at INTEGER NOT NULL,
  used_at    INTEGER NOT NULL,
  waits      INTEGER NOT NULL DEFAULT 0, -- 1 for one of a restored backup that nobody has accepted yet: it may have been revoked since the backup
  subject    TEXT    NOT NULL DEFAULT '' -- who signed in, for a session; empty for a token
) STRICT, WITHOUT ROWID;
CREATE INDEX access_token_name ON access_token (name);

-- Writes and overrides, and who did them, chained by digest. Rows are only added.
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

-- The hub that the database belongs to: one row, with the id of its key.
CREATE TABLE owner (
  id  INTEGER PRIMARY KEY CHECK (id = 1),
  kid TEXT    NOT NULL
) STRICT;

-- Decisions about promotion. Those that the hub has not signed are bounded, and counted with each that comes.
CREATE TABLE decision (
  digest      TEXT    NOT NULL PRIMARY KEY,
  platform    TEXT    NOT NULL,
  environment TEXT    NOT NULL,
  issued_at   INTEGER NOT NULL,
  seen_at     INTEGER NOT NULL,
  own         INTEGER NOT NULL,
  envelope    BLOB    NOT NULL
) STRICT;
CREATE INDEX decision_place ON decision (environment, platform, issued_at);
CREATE INDEX decision_others ON decision (environment, platform) WHERE own = 0;

-- What the hub writes to see whether there is room.
CREATE TABLE probe (
  id      INTEGER PRIMARY KEY,
  content BLOB    NOT NULL
) STRICT;

-- What judges have posted, one row for each platform.
CREATE TABLE promotion (
  platform  TEXT    NOT NULL PRIMARY KEY,
  judged_at INTEGER NOT NULL,
  content   TEXT    NOT NULL,
  body      BLOB    NOT NULL
) STRICT;
