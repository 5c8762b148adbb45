package fleet

import (
	"reflect"
	"time"

	"github.com/wherry-dev/wherry/hub/store"
)

// Plain makes all texts in the value that v points to plain, as store.Plain does, keys of maps too; bytes stay. It is for
// answers of another machine, and for bodies as agents have signed them, before they are shown.
func Plain(v any) { plain(reflect.ValueOf(v)) }

func plain(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			plain(v.Elem())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				plain(f)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			plain(v.Index(i))
		}
	case reflect.Map:
		if v.IsNil() {
			return
		}
		clean := reflect.MakeMapWithSize(v.Type(), v.Len())
		for all := v.MapRange(); all.Next(); {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.Set(all.Key())
			value.Set(all.Value())
			plain(key)
			plain(value)
			clean.SetMapIndex(key, value)
		}
		v.Set(clean)
	case reflect.Interface:
		if v.IsNil() {
			return
		}
		inner := reflect.New(v.Elem().Type()).Elem()
		inner.Set(v.Elem())
		plain(inner)
		v.Set(inner)
	case reflect.String:
		if s := v.String(); s != "" {
			if p := store.Plain(s); p != s {
				v.SetString(p)
			}
		}
	}
}
