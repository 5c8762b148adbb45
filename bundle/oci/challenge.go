package oci

import "strings"

// challenge is one authentication challenge of a registry; see RFC 9110, section 11.6.1.
type challenge struct {
	scheme string // in lower case
	params map[string]string
}

// bearerOf returns the first Basic or Bearer challenge of headers, if it is Bearer.
func bearerOf(headers []string) (challenge, bool) {
	for _, header := range headers {
		for _, c := range parseChallenges(header) {
			if c.scheme == "basic" || c.scheme == "bearer" {
				return c, c.scheme == "bearer"
			}
		}
	}
	return challenge{}, false
}

// parseChallenges returns the challenges of one header, up to the first syntax error.
func parseChallenges(header string) (all []challenge) {
	for rest := header; ; {
		name, after := cutToken(strings.TrimLeft(rest, " \t,"))
		if name == "" {
			return all
		}
		rest = strings.TrimLeft(after, " \t")
		if !strings.HasPrefix(rest, "=") {
			all = append(all, challenge{scheme: strings.ToLower(name), params: map[string]string{}})
			continue
		}
		value, after, ok := cutValue(strings.TrimLeft(rest[1:], " \t"))
		if !ok || len(all) == 0 {
			return all
		}
		all[len(all)-1].params[strings.ToLower(name)], rest = value, after
	}
}

// cutToken returns the token that s begins with, and the rest; see RFC 9110, 5.6.2.
func cutToken(s string) (token, rest string) {
	end := strings.IndexFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
	if end < 0 {
		end = len(s)
	}
	return s[:end], s[end:]
}

// cutValue returns the token or quoted string that s begins with, and the rest.
func cutValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		value, rest = cutToken(s)
		return value, rest, value != ""
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return b.String(), s[i+1:], true
		case s[i] == '\\' && i+1 < len(s):
			i++
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}
