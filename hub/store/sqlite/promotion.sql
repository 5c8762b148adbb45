-- What judges have posted, one row for each platform.
CREATE TABLE promotion (
  platform  TEXT    NOT NULL PRIMARY KEY,
  judged_at INTEGER NOT NULL,
  content   TEXT    NOT NULL,
  body      BLOB    NOT NULL
) STRICT;
