-- "PRAGMA user_version" 7: failures of assignments since a time.
CREATE INDEX transition_failed ON transition (time) WHERE state = 'failed';
