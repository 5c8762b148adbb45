-- What judges have posted, one row for each platform.
CREATE TABLE promotion (
  platform  TEXT COLLATE "C" PRIMARY KEY,
  judged_at BIGINT NOT NULL,
  content   TEXT COLLATE "C" NOT NULL,
  body      BYTEA NOT NULL
);
