package manifest

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/carrelhost/carrel/host/strictjson"
)

// object is a JSON object of a manifest, its members known to the level.
type object struct {
	c       *checker
	at      string
	members map[string]any
}

func (c *checker) object(v any, at string, l level) (object, bool) {
	members, ok := v.(map[string]any)
	if !ok {
		c.fault(at, "%s must be an object, not %s", l.what, strictjson.KindOf(v))
		return object{}, false
	}
	c.checkMembers(members, at, l)
	return object{c, at, members}, true
}

// asText checks a string and its length in bytes; 0 means no bound here.
func (c *checker) asText(v any, at string, most int) (string, bool) {
	s, ok := v.(string)
	switch {
	case !ok:
		c.fault(at, "a string is expected, not %s", strictjson.KindOf(v))
	case most > 0 && len(s) > most:
		c.fault(at, "this is %d bytes long, at most %d are allowed; shorten it", len(s), most)
		ok = false
	}
	return s, ok
}

// text reads an optional string. ok is false if it is absent or faulty.
func (o object) text(name string, most int) (s string, ok bool) {
	v, ok := o.members[name]
	if !ok {
		return "", false
	}
	return o.c.asText(v, Pointer(o.at, name), most)
}

func (o object) requiredText(name string, most int, remedy string) (string, bool) {
	if _, ok := o.members[name]; !ok {
		o.c.fault(Pointer(o.at, name), "`%s` is missing; %s", name, remedy)
		return "", false
	}
	return o.text(name, most)
}

func (o object) boolean(name string) (value, ok bool) {
	v, there := o.members[name]
	if !there {
		return false, false
	}
	if value, ok = v.(bool); !ok {
		o.c.fault(Pointer(o.at, name), "true or false is expected, not %s", strictjson.KindOf(v))
	}
	return value, ok
}

// list reads an optional array and checks its length.
func (o object) list(name string, most int) ([]any, bool) {
	v, there := o.members[name]
	if !there {
		return nil, false
	}
	list, ok := v.([]any)
	switch {
	case !ok:
		o.c.fault(Pointer(o.at, name), "an array is expected, not %s", strictjson.KindOf(v))
	case len(list) > most:
		o.c.fault(Pointer(o.at, name), "it has %d elements, at most %d are allowed", len(list), most)
		ok = false
	}
	return list, ok
}

// integer reads an optional integer between two bounds. It is written without
// fraction and exponent.
func (o object) integer(name string, least, most int64) (int64, bool) {
	v, there := o.members[name]
	if !there {
		return 0, false
	}
	n, isNumber := v.(json.Number)
	i, err := strconv.ParseInt(string(n), 10, 64)
	switch {
	case !isNumber:
		o.c.fault(Pointer(o.at, name), "an integer is expected, not %s", strictjson.KindOf(v))
	case err != nil || i < least || i > most:
		o.c.fault(Pointer(o.at, name), "an integer from %d to %d is expected, written without fraction or exponent", least, most)
	default:
		return i, true
	}
	return 0, false
}

// number reads an optional number between two bounds.
func (o object) number(name string, least, most float64) *float64 {
	v, there := o.members[name]
	if !there {
		return nil
	}
	n, isNumber := v.(json.Number)
	f, err := n.Float64()
	if !isNumber || err != nil || math.IsNaN(f) || f < least || f > most {
		o.c.fault(Pointer(o.at, name), "a number from %g to %g is expected", least, most)
		return nil
	}
	return &f
}
