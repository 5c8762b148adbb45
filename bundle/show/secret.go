package show

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// LooksSecret reports whether a configuration value is probably a secret, by its key or by its form. It is a guess from
// names and shapes. It errs on the safe side for hiding values, and seldom enough for warnings. It does not measure
// randomness, because digests and identifiers are random too.
//
// An empty text, a boolean and a template that only refers to another value are never secrets, whatever the
// key. The key may be a path such as db.password, of which the last part counts.
func LooksSecret(key, value string) bool {
	return isSecretNamed(key, value) || secretShape().MatchString(value) || holdsSecretPair(value)
}

func isSecretNamed(key, value string) bool {
	value = strings.TrimSpace(value)
	return secretName(key) && !onlyRefers(value) && !slices.Contains(plainWords, strings.ToLower(value))
}

// secretShape matches values that are secrets under any name.
var secretShape = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(strings.Join([]string{
		`-----BEGIN [A-Z0-9 ]*PRIVATE KEY`,
		`\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`,                 // a JSON web token
		`[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*:[^/\s:@{}]+@`,                             // a URL with a password
		`\b(ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{30,}\b`, `\bgithub_pat_[A-Za-z0-9_]{30,}`, // GitHub
		`\bglpat-[A-Za-z0-9_-]{20,}`,                    // GitLab
		`\bxox[abeoprs]-[A-Za-z0-9-]{10,}`,              // Slack
		`\b(AKIA|ASIA)[A-Z0-9]{16}\b`,                   // AWS
		`\bAIza[A-Za-z0-9_-]{35}`,                       // Google
		`\bhv[sb]\.[A-Za-z0-9_-]{20,}`,                  // Vault
		`\b[sr]k_live_[A-Za-z0-9]{16,}`,                 // Stripe
		`(?i)\b(bearer|basic)\s+[A-Za-z0-9+/_.~-]{16,}`, // an Authorization header
		`(?i)[?&]sig=[A-Za-z0-9%+/=]{16,}`,              // a shared access signature
	}, "|"))
})

// namedPair finds NAME=VALUE and NAME: VALUE in a text, as in connection strings, environment files, YAML
// and JSON within one value.
var namedPair = lazyregexp.New(`([A-Za-z][A-Za-z0-9_.-]*)["']?\s*[:=]\s*["']?([^\s"',;&]+)`)

func holdsSecretPair(value string) bool {
	for _, pair := range namedPair.FindAllStringSubmatch(value, -1) {
		if !strings.HasPrefix(pair[2], "//") && isSecretNamed(pair[1], pair[2]) { // a URL's scheme is no name
			return true
		}
	}
	return false
}

// onlyRefers reports whether a value names the place of a secret and not the secret: a template, a path, a URL, a
// variable.
func onlyRefers(value string) bool {
	return strings.HasPrefix(value, "{{") && strings.HasSuffix(value, "}}") ||
		strings.HasPrefix(value, "${") && strings.HasSuffix(value, "}") ||
		(strings.HasPrefix(value, "/") || strings.HasPrefix(value, "./")) && !strings.ContainsAny(value, " =+") ||
		strings.Contains(value, "://")
}

var (
	// secretWords are names of secrets, or end them: "password", "db-password", "dbpassword".
	secretWords = []string{
		"password", "passwords", "passwd", "passphrase", "passcode", "secret", "secrets", "token", "tokens", "credential", "credentials",
		"apikey", "accesskey", "accountkey", "privatekey", "secretkey", "sharedkey", "signingkey", "masterkey",
	}
	// wholeSecretWords are too short to be searched for at the end of a longer word.
	wholeSecretWords = []string{"pwd", "pass", "pin"}
	// openKeys come before a "key" that is not secret.
	openKeys = []string{"public", "pub", "primary", "foreign", "partition", "sort", "cache", "routing", "row", "object", "hot", "map", "group", "topic"}
	// plainWords are no secrets.
	plainWords = []string{"", "true", "false", "yes", "no", "null", "none", "~"}
	// nameless words may follow the name of a secret: "password-2", "token-base64".
	nameless = []string{"value", "text", "plain", "base64", "b64", "old", "new", "default"}
)

// secretName checks the end of a name, because the last word tells the kind: a password-file is a file, a
// token-url a URL.
func secretName(name string) bool {
	words := wordsOf(name)
	for len(words) > 1 && slices.Contains(nameless, words[len(words)-1]) {
		words = words[:len(words)-1]
	}
	if len(words) == 0 {
		return false
	}
	last := words[len(words)-1]
	if slices.Contains(wholeSecretWords, last) {
		return true
	}
	if last == "key" || last == "keys" {
		return len(words) > 1 && !slices.Contains(openKeys, words[len(words)-2])
	}
	return slices.ContainsFunc(secretWords, func(w string) bool { return strings.HasSuffix(last, w) })
}

// wordsOf splits MAX_RETRIES, maxRetries and max-retries alike. It drops numbers.
func wordsOf(name string) []string {
	var words []string
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			words = append(words, strings.ToLower(word.String()))
			word.Reset()
		}
	}
	lower := false // the letter before
	for _, r := range name {
		if !unicode.IsLetter(r) && !(unicode.IsDigit(r) && word.Len() > 0) {
			end()
			lower = false
			continue
		}
		if unicode.IsUpper(r) && lower {
			end()
		}
		word.WriteRune(r)
		lower = unicode.IsLower(r)
	}
	end()
	for i, w := range words {
		if w != "b64" && w != "base64" {
			words[i] = strings.TrimRight(w, "0123456789")
		}
	}
	return words
}

// Masked replaces a value that must not be shown.
const Masked = "(secret)"

// Mask returns value, or [Masked] if it looks like a secret.
func Mask(key, value string) string {
	if LooksSecret(key, value) {
		return Masked
	}
	return value
}
