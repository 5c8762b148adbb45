package api

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// The media types of lists, beside JSON.
const (
	typeCSV    = "text/csv"
	typeNDJSON = "application/x-ndjson"
)

// worthZip is the size in bytes from which an answer is compressed, if the client takes that.
const worthZip = 4 << 10

// write answers with a value in the form that the request prefers. With an error, nothing is written.
func write(w http.ResponseWriter, r *http.Request, route read, answer any) error {
	kind := hubapi.ContentType
	var body bytes.Buffer
	var err error
	if route.rows != "" {
		if kind, err = formatOf(r); err != nil {
			return err
		}
		w.Header().Add("Vary", "Accept")
		if next := fieldOf(answer, "Next"); next.IsValid() && next.String() != "" {
			w.Header().Set("Link", fmt.Sprintf("<%s>; rel=\"next\"", nextLink(r.URL, next.String())))
		}
	}
	switch kind {
	case typeCSV:
		err = fleet.WriteCSV(&body, rowsOf(answer, route.rows))
	case typeNDJSON:
		err = encodeRows(&body, rowsOf(answer, route.rows))
	default:
		err = encoder(&body).Encode(answer)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", kind)
	if kind == typeCSV {
		w.Header().Set("Content-Type", kind+"; charset=utf-8; header=present")
	}
	WriteBody(w, r, http.StatusOK, &body)
	return nil
}

// WriteBody answers with a body, compressed if it is worth that and the client takes it.
func WriteBody(w http.ResponseWriter, r *http.Request, status int, body *bytes.Buffer) {
	w.Header().Add("Vary", "Accept-Encoding")
	if body.Len() < worthZip || !takes(r.Header.Values("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
		w.WriteHeader(status)
		_, _ = body.WriteTo(w) // the client may have gone
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	zip, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level exists
	_, _ = body.WriteTo(zip)
	_ = zip.Close()
}

// formatOf returns the media type of a list that a request wants.
func formatOf(r *http.Request) (string, error) {
	switch name := r.URL.Query().Get(format.Name); name {
	case "":
		return preferred(r.Header.Values("Accept")), nil
	case "json":
		return hubapi.ContentType, nil
	case "csv":
		return typeCSV, nil
	case "ndjson":
		return typeNDJSON, nil
	default:
		return "", invalid("parameter format: %q is neither csv, ndjson nor json", store.Plain(store.Clip(name)))
	}
}

func encoder(body *bytes.Buffer) *json.Encoder {
	enc := json.NewEncoder(body)
	enc.SetEscapeHTML(false)
	return enc
}

func encodeRows(body *bytes.Buffer, rows reflect.Value) error {
	enc := encoder(body)
	for i := range rows.Len() {
		if err := enc.Encode(rows.Index(i).Interface()); err != nil {
			return err
		}
	}
	return nil
}

// rowsOf returns the field of an answer with this JSON name, which is a list.
func rowsOf(answer any, name string) reflect.Value {
	v := reflect.ValueOf(answer)
	for i := range v.NumField() {
		if tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ","); tag == name {
			return v.Field(i)
		}
	}
	panic("api: the answer has no list " + name) // a test asks each route
}

func fieldOf(answer any, name string) reflect.Value { return reflect.ValueOf(answer).FieldByName(name) }

// nextLink returns the URL of the next page, relative to the hub.
func nextLink(u *url.URL, next string) string {
	q := u.Query()
	q.Set("after", next)
	return (&url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: q.Encode()}).String()
}

// preferred returns the form of a list that the header Accept prefers, JSON unless another one comes before it.
func preferred(accept []string) string {
	best, weight := hubapi.ContentType, 0.0
	for _, header := range accept {
		for part := range strings.SplitSeq(header, ",") {
			kind, params, err := mime.ParseMediaType(part)
			if err != nil {
				continue
			}
			switch kind {
			case typeCSV, typeNDJSON, hubapi.ContentType:
			case "*/*", "application/*":
				kind = hubapi.ContentType
			default:
				continue
			}
			if q := quality(params); q > weight {
				best, weight = kind, q
			}
		}
	}
	return best
}

func quality(params map[string]string) float64 {
	if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
		return q
	}
	return 1
}

// takes reports whether the header Accept-Encoding has the encoding.
func takes(accept []string, encoding string) bool {
	for _, header := range accept {
		for part := range strings.SplitSeq(header, ",") {
			name, params, err := mime.ParseMediaType(part)
			if err == nil && name == encoding {
				return quality(params) > 0
			}
		}
	}
	return false
}
