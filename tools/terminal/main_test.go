package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatACommandPrintsIsShownBelowIt(t *testing.T) {
	said, err := record("word='a < b'\necho quiet\n# shown\necho \"$word\"\necho c >&2\n", t.TempDir())
	require.NoError(t, err)
	require.Equal(t, []entry{{`echo "$word"`, []string{"a < b"}}, {"echo c >&2", []string{"c"}}}, said)

	_, err = record("# shown\necho before\nfalse\n", t.TempDir())
	require.ErrorContains(t, err, "before")
}

func TestThePictureIsXMLWithItsText(t *testing.T) {
	picture := string(draw([]entry{{"echo", []string{"a < b", strings.Repeat("x", 2*columns)}}}))
	decoder, text := xml.NewDecoder(strings.NewReader(picture)), ""
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if data, is := token.(xml.CharData); is {
			text += string(data)
		}
	}
	require.Contains(t, text, "$ echo\na < b\n"+strings.Repeat("x", columns-1)+"…\n")
}
