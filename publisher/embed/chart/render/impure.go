package render

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/publisher/embed/chart"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// impureFunctions make the functions whose result is not always the same, for one place that calls them. In place of a
// random value, a new key or the time they return what the run says: a chart is rendered with two of them, which differ in
// every letter, and what differs in the output depends on it. A lookup in the cluster finds nothing, and others that ask somebody fail.
var impureFunctions = map[string]func(*run, *site) any{
	"randAlphaNum": letters("abcdefghijklm01234", "nopqrstuvwxyz56789"),
	"randAlpha":    letters("abcdefghijklm", "nopqrstuvwxyz"),
	"randNumeric":  letters("01234", "56789"),
	"randAscii":    letters("!#$%()*+,-./01234abcdefghijklm", "56789:;<=>?@[]^_{|}~nopqrstuvwxyz"),
	"randBytes": func(r *run, s *site) any {
		return func(count int) (string, error) {
			data, err := r.random(s, count)
			for i := range data { // the upper half with the second
				data[i] = data[i]>>1 | r.seed(s)<<7
			}
			return base64.StdEncoding.EncodeToString(data), err
		}
	},
	"randInt": func(r *run, s *site) any {
		return func(low, high int) (int, error) {
			if _, err := r.random(s, 0); err != nil || high <= low {
				return 0, fmt.Errorf("there is no number from %d to %d", low, high-1)
			}
			if r.seed(s) == 0 {
				return low, nil
			}
			return high - 1, nil
		}
	},
	"shuffle": func(r *run, s *site) any {
		return func(text string) (string, error) {
			_, err := r.random(s, 0)
			all := []rune(text)
			slices.Sort(all)
			if r.seed(s) == 1 {
				slices.Reverse(all)
			}
			return string(all), err
		}
	},
	"uuidv4": func(r *run, s *site) any {
		return func() (string, error) {
			data, err := r.random(s, 32)
			digits := [2]string{"01234567", "89abcdef"}[r.seed(s)]
			text := make([]byte, len(data))
			for i := range data {
				text[i] = digits[data[i]%8]
			}
			text[12], text[16] = '4', "8b"[r.seed(s)]
			return string(slices.Concat(text[:8], []byte("-"), text[8:12], []byte("-"), text[12:16], []byte("-"), text[16:20], []byte("-"), text[20:])), err
		}
	},
	"bcrypt": func(r *run, s *site) any {
		return func(string) (string, error) { return r.bcrypt(s) }
	},
	"htpasswd": func(r *run, s *site) any {
		return func(user, _ string) (string, error) {
			if strings.Contains(user, ":") {
				return "invalid username: " + user, nil // as sprig has it
			}
			hash, err := r.bcrypt(s)
			return user + ":" + hash, err
		}
	},
	"genPrivateKey": func(r *run, s *site) any {
		return func(kind string) (string, error) { return r.pem(s, strings.ToUpper(kind)+" PRIVATE KEY") }
	},
	"genCA": func(r *run, s *site) any {
		return func(string, int) (certificate, error) { return r.certificate(s, "") }
	},
	"genCAWithKey": func(r *run, s *site) any {
		return func(_ string, _ int, key string) (certificate, error) { return r.certificate(s, key) }
	},
	"genSelfSignedCert": func(r *run, s *site) any {
		return func(string, []any, []any, int) (certificate, error) { return r.certificate(s, "") }
	},
	"genSelfSignedCertWithKey": func(r *run, s *site) any {
		return func(_ string, _, _ []any, _ int, key string) (certificate, error) { return r.certificate(s, key) }
	},
	"genSignedCert": func(r *run, s *site) any {
		return func(string, []any, []any, int, certificate) (certificate, error) { return r.certificate(s, "") }
	},
	"genSignedCertWithKey": func(r *run, s *site) any {
		return func(_ string, _, _ []any, _ int, _ certificate, key string) (certificate, error) {
			return r.certificate(s, key)
		}
	},

	"now": func(r *run, s *site) any { return func() time.Time { return r.now(s) } },
	"ago": func(r *run, s *site) any {
		return func(date any) string {
			t, _ := r.asTime(s, date)
			return r.now(s).Sub(t).Round(time.Second).String()
		}
	},
	"date": func(r *run, s *site) any {
		return func(format string, date any) string { return r.format(s, format, date) }
	},
	"htmlDate": func(r *run, s *site) any {
		return func(date any) string { return r.format(s, time.DateOnly, date) }
	},
	"dateInZone":     dateInZone,
	"date_in_zone":   dateInZone,
	"htmlDateInZone": func(r *run, s *site) any { return inZone(r, s, time.DateOnly) },
	"durationRound": func(r *run, s *site) any {
		round := sprigFunctions["durationRound"].(func(any) string)
		return func(duration any) string {
			if t, ok := duration.(time.Time); ok {
				duration = r.now(s).Sub(t).String()
			}
			return round(duration)
		}
	},

	"lookup": func(r *run, s *site) any {
		return func(string, string, string, string) map[string]any { // with nothing, as helm template does
			r.looked[s.place] = s
			return map[string]any{}
		}
	},
	"getHostByName": func(r *run, s *site) any {
		return func(string) (string, error) { return "", r.refuses(s, "", "getHostByName asks the network") }
	},
	"encryptAES": func(r *run, s *site) any {
		return func(_, _ string) (string, error) {
			return "", r.refuses(s, "", "encryptAES gives another result each time")
		}
	},
}

// certificate has the fields of sprig's.
type certificate struct{ Cert, Key string }

func dateInZone(r *run, s *site) any {
	format := inZone(r, s, "")
	return func(layout string, date any, zone string) (string, error) { return format.in(layout, date, zone) }
}

// zoned formats a time in a zone by its name. The machine's list of zones is not asked.
type zoned func(layout string, date any, zone string) (string, error)

func (z zoned) in(layout string, date any, zone string) (string, error) { return z(layout, date, zone) }

func inZone(r *run, s *site, fixed string) zoned {
	return func(layout string, date any, zone string) (string, error) {
		switch zone {
		case "", "UTC", "Local", "GMT", "Etc/UTC":
		default:
			return "", r.refuses(s, "use UTC", "%s asks the machine for the time zone %s", s.function, zone)
		}
		if fixed != "" {
			layout = fixed
		}
		return r.format(s, layout, date), nil
	}
}

// refuses is an error about a call that never works here.
func (r *run) refuses(s *site, hint, format string, args ...any) error {
	if advice := s.advice(prefixOf(s.template)); advice != "" {
		hint = advice
	}
	return r.fails(&finding.Error{Position: finding.Position{File: s.template, Line: s.line}, Message: finding.Sentence(format, args...), Hint: hint, Err: chart.ErrNotReproducible})
}

// advice is what to set so that the call has no effect, empty if that is not known. The prefix is that of the chart's
// values in those of the whole.
func (s *site) advice(prefix string) string {
	if len(s.values) == 0 {
		return ""
	}
	v := slices.MinFunc(s.values, func(a, b adviceValue) int { return int(a.how) - int(b.how) })
	if v.how == whileSet {
		return fmt.Sprintf("set %s%s to false, and give what the chart would make", prefix, v.path)
	}
	return fmt.Sprintf("set %s%s", prefix, v.path)
}

// maxRandom bounds the letters of one random text.
const maxRandom = 1 << 20

// random returns count bytes that depend on the place, its number of calls and the seed.
func (r *run) random(s *site, count int) ([]byte, error) {
	if count < 0 || count > maxRandom {
		return nil, fmt.Errorf("%d is no number of letters that is made here", count)
	}
	r.called[s.place] = s
	n := r.calls[s.place]
	r.calls[s.place]++
	var all []byte
	for block := uint64(0); len(all) < count; block++ {
		input := binary.AppendUvarint(binary.AppendUvarint([]byte{r.seed(s)}, uint64(n)), block)
		sum := sha256.Sum256(append(input, s.place...))
		all = append(all, sum[:]...)
	}
	return all[:count], nil
}

// letters makes a random text: from the first letters with one seed, and from the second with the other.
func letters(first, second string) func(*run, *site) any {
	return func(r *run, s *site) any {
		return func(count int) (string, error) {
			data, err := r.random(s, count)
			from := [2]string{first, second}[r.seed(s)]
			for i := range data {
				data[i] = from[int(data[i])%len(from)]
			}
			return string(data), err
		}
	}
}

func (r *run) bcrypt(s *site) (string, error) {
	data, err := r.random(s, 39)
	return "$2a$10$" + base64.RawStdEncoding.EncodeToString(data), err
}

func (r *run) pem(s *site, kind string) (string, error) {
	data, err := r.random(s, 48)
	return "-----BEGIN " + kind + "-----\n" + base64.StdEncoding.EncodeToString(data) + "\n-----END " + kind + "-----\n", err
}

func (r *run) certificate(s *site, key string) (made certificate, err error) {
	if made.Cert, err = r.pem(s, "CERTIFICATE"); err != nil || key != "" {
		made.Key = key
		return made, err
	}
	made.Key, err = r.pem(s, "RSA PRIVATE KEY")
	return made, err
}

// now is one of two times that differ in every part.
func (r *run) now(s *site) time.Time {
	r.called[s.place] = s
	if r.seed(s) == 0 {
		return time.Date(2001, 2, 3, 4, 5, 6, 7, time.UTC)
	}
	return time.Date(2038, 11, 28, 19, 47, 51, 900_000_000, time.UTC)
}

// asTime reads a time as sprig does, for which all else is the present.
func (r *run) asTime(s *site, date any) (time.Time, bool) {
	switch date := date.(type) {
	case time.Time:
		return date, true
	case *time.Time:
		return *date, true
	case int64:
		return time.Unix(date, 0), true
	case int:
		return time.Unix(int64(date), 0), true
	case int32:
		return time.Unix(int64(date), 0), true
	}
	return r.now(s), false
}

func (r *run) format(s *site, layout string, date any) string {
	t, _ := r.asTime(s, date)
	return t.UTC().Format(layout)
}
