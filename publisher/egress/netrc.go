package egress

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
)

// netrc returns the login for host from the file that git and curl read too: $NETRC, else ~/.netrc.
func netrc(host string) (user, password string) {
	name := os.Getenv("NETRC")
	if home, err := os.UserHomeDir(); name == "" && err == nil {
		name = filepath.Join(home, ".netrc")
	}
	file, err := os.Open(name)
	if err != nil {
		return "", ""
	}
	defer func() { _ = file.Close() }()
	words := bufio.NewScanner(io.LimitReader(file, 1<<20))
	words.Split(bufio.ScanWords)
	for matches := false; words.Scan(); {
		key := words.Text()
		if key == "default" || key == "machine" {
			if user != "" {
				return user, password
			}
			matches = key == "default" || words.Scan() && words.Text() == host
			continue
		}
		if !words.Scan() || !matches {
			continue
		}
		switch key {
		case "login":
			user = words.Text()
		case "password":
			password = words.Text()
		}
	}
	return user, password
}
