-- Step 2 of the schema: failures of assignments since a time.
CREATE INDEX transition_failed ON transition (time) WHERE state = 'failed';
