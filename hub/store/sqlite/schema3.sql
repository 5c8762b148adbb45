-- "PRAGMA user_version" 3: how often an assignment has begun to fail, by its agent's count. Reports in
-- between may never arrive, and the difference of two counts tells how many failures they told of.
-- Rows of before say 0, as those of agents do that do not count.
ALTER TABLE deployment ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE transition ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
