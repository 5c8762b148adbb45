package upkeep

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/sqlite"
)

// Whoever changes the audit log in the database, past the hub, is found out, and the place is named.
func TestAGapInTheAuditLogIsNamed(t *testing.T) {
	for _, tt := range []struct {
		name, change string
		want         []string
	}{
		{"nothing is changed", `SELECT 1`, nil},
		{"an entry is removed", `DELETE FROM audit WHERE position = 3`, []string{"audit log: entry 3 is missing"}},
		{"several are removed", `DELETE FROM audit WHERE position BETWEEN 2 AND 4`, []string{"audit log: entries 2 to 4 are missing"}},
		{"the first are removed", `DELETE FROM audit WHERE position < 3`, []string{"audit log: entries 1 to 2 are missing"}},
		{"the newest are removed", `DELETE FROM audit WHERE position > 4`, []string{"audit log: entries 5 to 6 are missing at its end"}},
		{"all are removed", `DELETE FROM audit`, []string{"audit log: entries 1 to 6 are missing at its end"}},
		{"all are removed, and the note of the end", `DELETE FROM audit_head`, []string{"audit log: the digest of its newest entry is missing"}},
		{"another actor is named", `UPDATE audit SET actor = 'eve' WHERE position = 3`, []string{"audit log: entry 3 does not follow from entry 2: one of them was changed"}},
		{"the first entry is changed", `UPDATE audit SET at = at + 1 WHERE position = 1`, []string{"audit log: entry 1 was changed"}},
		{"the newest entry is written anew", `UPDATE audit SET digest = 'sha256:00' WHERE position = 6`, []string{
			"audit log: entry 6 does not follow from entry 5: one of them was changed",
			"audit log: entry 6 has another digest than the database noted when it was written",
		}},
		{"two entries change places", `UPDATE audit SET position = CASE position WHEN 2 THEN -3 ELSE -2 END WHERE position IN (2, 3); UPDATE audit SET position = -position WHERE position < 0`, []string{
			"audit log: entry 2 does not follow from entry 1: one of them was changed",
			"audit log: entry 3 does not follow from entry 2: one of them was changed",
			"audit log: entry 4 does not follow from entry 3: one of them was changed",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "hub.db")
			kept, err := sqlite.Open(path, sqlite.Options{})
			require.NoError(t, err)
			for i := range 6 {
				require.NoError(t, kept.Audit(t.Context(), store.AuditEntry{At: time.Now(), Actor: "ann (a1)", Action: "retire cluster", Object: fmt.Sprint("plant-", i)}))
			}
			db, err := sql.Open("sqlite", path)
			require.NoError(t, err)
			_, err = db.Exec(tt.change)
			require.NoError(t, err)
			require.NoError(t, db.Close())
			var got []string
			done, err := Verify(t.Context(), kept, func(f Finding) error { got = append(got, f.String()); return nil }, nil)
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.want == nil, done.OK())
			require.NoError(t, kept.Close())
		})
	}
}
