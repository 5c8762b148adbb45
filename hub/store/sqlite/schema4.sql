-- "PRAGMA user_version" 4: the numbers by which people call releases. Rows of before say 0, as those of agents do that
-- do not know them.
ALTER TABLE cluster ADD COLUMN desired_number INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cluster ADD COLUMN observed_number INTEGER NOT NULL DEFAULT 0;
