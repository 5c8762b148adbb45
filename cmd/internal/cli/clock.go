package cli

import "time"

// fixedTime is the clock of a program that is linked with -X and a time as RFC 3339 has it, as "make digests" does.
var fixedTime string

// Now returns the time that is written into releases, site packages and reports: the machine's, but in programs whose
// output is compared byte for byte.
func Now() time.Time {
	if fixedTime == "" {
		return time.Now()
	}
	at, err := time.Parse(time.RFC3339, fixedTime)
	if err != nil {
		panic("fixedTime: " + err.Error()) // a mistake of the linker's flags
	}
	return at
}

// SetTime stops the clock that Now reads at a time as RFC 3339 has it, for tests.
func SetTime(at string) { fixedTime = at }
