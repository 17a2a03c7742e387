package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Current returns a stored manifest in the spelling that Parse reads, which may
// be raw itself. Older hosts wrote the seed of the model's random choices as an
// integer `seed` of a method, where the example turns are now.
func Current(raw []byte) ([]byte, error) {
	if !bytes.Contains(raw, []byte(`"seed":`)) { // what is stored has no white space
		return raw, nil
	}
	var out bytes.Buffer
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	e := jsontext.NewEncoder(&out, jsontext.SpaceAfterColon(false))
	for {
		t, err := d.ReadToken()
		if errors.Is(err, io.EOF) {
			return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
		}
		if err != nil {
			return nil, fmt.Errorf("read stored manifest: %w", err)
		}
		t = t.Clone() // looking ahead voids it
		if namesMethodSeed(d) && d.PeekKind() == '0' {
			t = jsontext.String("randomSeed")
		}
		if err := e.WriteToken(t); err != nil {
			return nil, fmt.Errorf("write stored manifest: %w", err)
		}
	}
}

// namesMethodSeed reports whether what was read last is the name of a
// method's member seed.
func namesMethodSeed(d *jsontext.Decoder) bool {
	kind, n := d.StackIndex(d.StackDepth())
	if kind != '{' || n%2 == 0 {
		return false
	}
	at := strings.Split(string(d.StackPointer()), "/")
	return len(at) == 6 && at[1] == "services" && at[3] == "methods" && at[5] == "seed"
}
