package bundle

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// AnnotationMessage is the annotation of a manifest with the message of the person who published the release. Registries
// show it as the description. The signature covers it, as all of the manifest.
const AnnotationMessage = ocispec.AnnotationDescription

// MaxReleaseMessageBytes bounds a message: each agent fetches it with the manifest.
const MaxReleaseMessageBytes = 500

// CheckMessage returns an error unless text may be the message of a release: one line of at most MaxReleaseMessageBytes in UTF-8,
// without control characters and those that reorder text.
func CheckMessage(text string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return errors.New("must not be empty")
	case len(text) > MaxReleaseMessageBytes:
		return fmt.Errorf("it has %d bytes, and may have %d", len(text), MaxReleaseMessageBytes)
	case !utf8.ValidString(text):
		return errors.New("it is not UTF-8")
	case strings.ContainsFunc(text, notPlain):
		return errors.New("it must be one line, without control characters")
	}
	return nil
}

// MessageOf returns the message in a manifest; empty if there is none, or none that CheckMessage accepts. It may be
// anybody's as long as the manifest is not verified.
func MessageOf(m ocispec.Manifest) string {
	if text := m.Annotations[AnnotationMessage]; CheckMessage(text) == nil {
		return text
	}
	return ""
}

// notPlain reports whether r has an effect in place of a form: control and format characters, and line separators. The
// joiners that some scripts need are plain.
func notPlain(r rune) bool {
	return r != '\u200c' && r != '\u200d' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}
