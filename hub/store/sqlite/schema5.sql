-- "PRAGMA user_version" 5: the past, the feed of changes, and the envelopes of reports.

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
INSERT INTO identity SELECT id, added_at, CASE WHEN removed_at IS NULL THEN NULL ELSE max(added_at, removed_at) END,
  name, platform, type, environment, ring, expected FROM cluster;
CREATE TABLE label (
  cluster_id INTEGER NOT NULL,
  key        TEXT    NOT NULL,
  since      INTEGER NOT NULL,
  until      INTEGER,
  value      TEXT    NOT NULL,
  PRIMARY KEY (cluster_id, key, since)
) STRICT, WITHOUT ROWID;
INSERT INTO label SELECT c.id, l.key, c.added_at, CASE WHEN c.removed_at IS NULL THEN NULL ELSE max(c.added_at, c.removed_at) END, l.value
  FROM cluster c, json_each(c.labels) l WHERE l.key IS NOT NULL; -- "null" is no labels
CREATE INDEX label_value ON label (key, value) WHERE until IS NULL;

-- What reports say of an agent beside its state, as JSON (timeline.About). It changes seldom.
CREATE TABLE about (
  id         INTEGER PRIMARY KEY,
  cluster_id INTEGER NOT NULL,
  content    TEXT    NOT NULL
) STRICT;
CREATE INDEX about_cluster ON about (cluster_id);
INSERT INTO about (id, cluster_id, content) SELECT id, id, json_patch('{}', json_object(
    'desired', CASE WHEN desired_digest = '' THEN NULL ELSE json_object('digest', desired_digest, 'epoch', desired_epoch, 'sequence', desired_sequence, 'number', desired_number) END,
    'observed', CASE WHEN observed_digest = '' THEN NULL ELSE json_object('digest', observed_digest, 'epoch', observed_epoch, 'sequence', observed_sequence, 'number', observed_number,
      'expired', json(CASE expired WHEN 0 THEN 'false' ELSE 'true' END)) END,
    'agentVersion', agent_version,
    'claims', CASE WHEN json_valid(claims) THEN json(claims) ELSE json_object() END))
  FROM cluster WHERE last_seen IS NOT NULL;

-- Reports by their place. The id is 32 bytes, and position and part are where the envelope is; part is -1 without one.
CREATE TABLE report5 (
  cluster_id  INTEGER NOT NULL,
  incarnation INTEGER NOT NULL,
  seq         INTEGER NOT NULL,
  id          BLOB    NOT NULL,
  kind        TEXT    NOT NULL,
  occurred_at INTEGER NOT NULL, -- the agent's clock
  received_at INTEGER NOT NULL,
  time        INTEGER NOT NULL, -- the earlier of the two
  via         TEXT    NOT NULL,
  kid         TEXT    NOT NULL,
  ack_owed    INTEGER NOT NULL, -- it came by media and no acknowledgement has been exported since
  position    INTEGER NOT NULL,
  part        INTEGER NOT NULL,
  PRIMARY KEY (cluster_id, incarnation, seq)
) STRICT, WITHOUT ROWID;
INSERT INTO report5 SELECT cluster_id, incarnation, seq, coalesce(unhex(substr(id, 8)), CAST(id AS BLOB)), kind, occurred_at, received_at,
  min(occurred_at, received_at), via, kid, ack_owed, 0, -1 FROM report;

-- The present. A deployment keeps its row for ever, whether the newest report lists it or not, for the history of it; the one
-- whose assignment is empty is the agent as a whole, and never listed.
CREATE TABLE deployment5 (
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
  failures    INTEGER NOT NULL,
  floating    INTEGER NOT NULL,
  listed      INTEGER NOT NULL, -- whether the newest report lists it
  UNIQUE (cluster_id, assignment)
) STRICT;
INSERT INTO deployment5 (cluster_id, assignment, workspace, application, workload, target, adapter, state, reason, message, since, version, config, content, revision, site_values, failures, floating, listed)
  SELECT cluster_id, assignment, workspace, '', workload, target, adapter, state, reason, message, CASE listed WHEN 1 THEN since ELSE 0 END, version, config, content, revision, '', failures, floating, listed
  FROM deployment ORDER BY cluster_id, assignment;
INSERT INTO deployment5 (cluster_id, assignment, workspace, application, workload, target, adapter, state, reason, message, since, version, config, content, revision, site_values, failures, floating, listed)
  SELECT id, '', '', '', '', '', '', '', '', '', 0, '', '', '', '', '', 0, 0, 0 FROM cluster;
INSERT OR IGNORE INTO deployment5 (cluster_id, assignment, workspace, application, workload, target, adapter, state, reason, message, since, version, config, content, revision, site_values, failures, floating, listed)
  SELECT DISTINCT cluster_id, assignment, '', '', '', '', '', 'removed', 'NotListed', '', 0, '', '', '', '', '', 0, 0, 0 FROM transition;

-- For each deployment a row at each report that has changed it. Since and site values are empty in rows of before, as is about
-- but in those of agents as a whole.
CREATE TABLE transition5 (
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
INSERT INTO transition5 SELECT d.id, t.incarnation, t.seq, min(t.occurred_at, t.received_at), t.state, t.reason, t.version, t.config, t.content, t.revision, '', t.failures, 0, NULL
  FROM transition t JOIN deployment5 d ON d.cluster_id = t.cluster_id AND d.assignment = t.assignment;

DROP TABLE transition;
DROP TABLE report;
DROP TABLE deployment;
DROP INDEX cluster_place;
ALTER TABLE report5 RENAME TO report;
ALTER TABLE deployment5 RENAME TO deployment;
ALTER TABLE transition5 RENAME TO transition;
CREATE INDEX report_time ON report (cluster_id, time);
CREATE INDEX report_ack_owed ON report (cluster_id, incarnation, seq) WHERE ack_owed = 1;
CREATE INDEX report_owed_id ON report (id) WHERE ack_owed = 1;
CREATE INDEX deployment_workload ON deployment (workload);
CREATE INDEX transition_time ON transition (time);

ALTER TABLE cluster DROP COLUMN desired_digest;
ALTER TABLE cluster DROP COLUMN desired_epoch;
ALTER TABLE cluster DROP COLUMN desired_sequence;
ALTER TABLE cluster DROP COLUMN desired_number;
ALTER TABLE cluster DROP COLUMN observed_epoch;
ALTER TABLE cluster DROP COLUMN observed_sequence;
ALTER TABLE cluster DROP COLUMN observed_number;
ALTER TABLE cluster DROP COLUMN expired;
ALTER TABLE cluster DROP COLUMN agent_version;
ALTER TABLE cluster DROP COLUMN claims;
-- The newest change of the feed; the newest report; and whether the times of reports have ever fallen.
ALTER TABLE cluster ADD COLUMN change INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cluster ADD COLUMN about_id INTEGER;
ALTER TABLE cluster ADD COLUMN report_id BLOB;
ALTER TABLE cluster ADD COLUMN occurred_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cluster ADD COLUMN received_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cluster ADD COLUMN via TEXT NOT NULL DEFAULT '';
ALTER TABLE cluster ADD COLUMN fell INTEGER NOT NULL DEFAULT 0;
-- Retention has removed the reports before this one.
ALTER TABLE cluster ADD COLUMN kept_incarnation INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cluster ADD COLUMN kept_seq INTEGER NOT NULL DEFAULT 0;
UPDATE cluster SET about_id = id WHERE last_seen IS NOT NULL;
UPDATE cluster SET (report_id, occurred_at, received_at, via) = (SELECT r.id, r.occurred_at, r.received_at, r.via FROM report r
    WHERE r.cluster_id = cluster.id AND r.incarnation = cluster.incarnation AND r.seq = cluster.seq)
  WHERE EXISTS (SELECT 1 FROM report r WHERE r.cluster_id = cluster.id AND r.incarnation = cluster.incarnation AND r.seq = cluster.seq);
UPDATE cluster SET fell = EXISTS (SELECT 1 FROM
  (SELECT time < lag(time) OVER (ORDER BY incarnation, seq) AS falls FROM report r WHERE r.cluster_id = cluster.id) WHERE falls);
UPDATE transition SET about_id = (SELECT d.cluster_id FROM deployment d WHERE d.id = transition.deployment_id)
  WHERE (deployment_id, incarnation, seq) IN (SELECT d.id, t.incarnation, t.seq FROM deployment d JOIN cluster c ON c.id = d.cluster_id
    JOIN transition t ON t.deployment_id = d.id AND (t.incarnation, t.seq) =
      (SELECT x.incarnation, x.seq FROM transition x WHERE x.deployment_id = d.id ORDER BY x.incarnation DESC, x.seq DESC LIMIT 1)
    WHERE d.assignment = '' AND c.about_id IS NOT NULL);
