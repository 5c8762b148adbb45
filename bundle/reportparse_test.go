package bundle

import (
	"crypto/ed25519"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// full sets each field of a value, and of the values in it, to something that is not zero.
func full(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		full(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		full(v.Index(0))
		full(v.Index(1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("a"), reflect.ValueOf("b"))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 11, 21, 12, 0, 0, 5, time.UTC)))
			return
		}
		for i := range v.NumField() {
			full(v.Field(i))
		}
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetInt(-12)
	}
}

func TestReportsOfAgentsAreReadTheFastWay(t *testing.T) {
	var want Report
	full(reflect.ValueOf(&want).Elem())
	for _, r := range []Report{want, {}, {Items: []Item{}, Desired: &ReportRelease{}}} {
		body, err := json.Marshal(r)
		require.NoError(t, err)
		body = []byte(strings.Replace(string(body), `"items":null`, `"items":[]`, 1))
		var fast, slow Report
		p := reportParser{rest: body}
		p.report(&fast)
		require.False(t, p.failed, string(body))
		require.Empty(t, p.rest)
		require.NoError(t, json.Unmarshal(body, &slow))
		require.Equal(t, slow, fast)
	}
}

func FuzzReportsAreReadAsByJSON(f *testing.F) {
	var r Report
	full(reflect.ValueOf(&r).Elem())
	body, err := json.Marshal(r)
	require.NoError(f, err)
	for _, s := range []string{
		string(body), `{}`, `{"items":[]}`, `{"items":[{}]}`, `{"schema":1,"schema":2}`, `{"schema":01}`, `{"schema":-0}`, `{"Schema":1}`, `{"kind":"a\u0041"}`, `{"kind":"é"}`,
		`{"agent":{"seq":1}}{}`, `{"agent":{"seq":1}} `, `{"desired":null}`, `{"cluster":{"labels":{"a":"b","a":"c"}}}`, `{"occurredAt":"2026-11-21T12:00:00+25:00"}`,
		`{"items":[{},]}`, `{"items":[{}`, `{"agent":{"seq":9999999999999999999}}`, `{"items":[{"since":"2026-11-21T12:00:00Z","floating":true}]}`, `{"agent":{"seq":-}}`, `{"schema":1,}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var got, want Report
		errGot, errWant := unmarshalReport(body, &got), json.Unmarshal(body, &want)
		require.Equal(t, errWant, errGot)
		if errWant == nil {
			require.Equal(t, want, got)
		}
	})
}

func FuzzUsualEnvelope(f *testing.F) {
	public, private, err := ed25519.GenerateKey(strings.NewReader(strings.Repeat("seed", 8)))
	require.NoError(f, err)
	sealed, err := SealEnvelope(PayloadTypeReport, []byte(`{"schema":1}`), private)
	require.NoError(f, err)
	id, err := KeyID(public)
	require.NoError(f, err)
	f.Add(sealed)
	f.Add([]byte(strings.Replace(string(sealed), `"payload":"`, `"payload":"\n`, 1)))
	f.Add([]byte(strings.Replace(string(sealed), `"sig":"`, `"sig":"AAAA`, 1)))
	f.Add(append(sealed, sealed...))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, rest, ok := ParseUsualEnvelope(PayloadTypeReport, data)
		if !ok {
			return
		}
		envelope := data[:len(data)-len(rest)]
		require.Equal(t, string(envelope), string(e.AppendTo(nil)), "byte for byte")
		body, kid, err := OpenEnvelope(PayloadTypeReport, envelope, public)
		signed := e.SignedBy(public) && e.KeyID == id
		require.Equal(t, err == nil, signed)
		if signed {
			require.Equal(t, string(body), string(e.Body))
			require.Equal(t, kid, e.KeyID)
		}
	})
}
