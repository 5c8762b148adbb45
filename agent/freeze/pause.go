package freeze

import (
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// Pause is a person's wish that nothing in the cluster be changed.
type Pause struct {
	At time.Time `json:"at"`
	// Until is when it ends by itself; zero is not before Resume.
	Until  time.Time `json:"until,omitzero"`
	Reason string    `json:"reason,omitempty"`
}

// LoadPause returns the pause that is in force at now, nil for none.
func LoadPause(tx *bbolt.Tx, now time.Time) (*Pause, error) {
	p, err := state.Load[*Pause](tx, state.Meta, KeyPause)
	if err != nil || p == nil || !p.Until.IsZero() && !now.Before(p.Until) {
		return nil, err
	}
	return p, nil
}

func (p *Pause) freeze() *Freeze {
	return &Freeze{State: bundle.Suspended, Reason: ReasonPaused, Message: p.Reason, Since: p.At, Until: p.Until}
}

// Paused returns the freeze of the pause that is in force at now, nil for none.
func Paused(db *state.DB, now time.Time) (f *Freeze, err error) {
	err = db.View(func(tx *bbolt.Tx) error {
		by, err := LoadPause(tx, now)
		if by != nil {
			f = by.freeze()
		}
		return err
	})
	if err != nil {
		return nil, state.Local("read state: %w", err)
	}
	return f, nil
}
