package api

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/similar"
	"github.com/wherry-dev/wherry/hub/store"
)

// unknownName answers with the names that are known, the nearest first.
func unknownName(e *store.UnknownNameError) *hubapi.Error {
	said := &hubapi.Error{Code: hubapi.CodeUnknownName, Message: store.Plain(store.Clip(e.Error())), Kind: e.Kind, Name: store.Plain(store.Clip(e.Name))}
	near := similar.To(e.Name, e.Known)
	if near == "" {
		said.Known = slices.Clone(e.Known[:min(len(e.Known), hubapi.MaxKnown)])
		return said
	}
	said.Message += fmt.Sprintf("; did you mean %s?", near)
	said.Known = append(said.Known, near)
	for _, name := range e.Known {
		if name != near && len(said.Known) < hubapi.MaxKnown {
			said.Known = append(said.Known, name)
		}
	}
	return said
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", store.ErrInvalid, strings.TrimSpace(fmt.Sprintf(format, args...)))
}
