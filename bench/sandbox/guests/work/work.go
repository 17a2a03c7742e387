// Package work is what the guests of every contract do, so that they differ
// in how they are run only.
package work

import (
	"encoding/json"
	"slices"
)

type order struct {
	Name  string    `json:"name"`
	Items []float64 `json:"items"`
}

type total struct {
	Name   string    `json:"name"`
	Count  int       `json:"count"`
	Sum    float64   `json:"sum"`
	Mean   float64   `json:"mean"`
	Sorted []float64 `json:"sorted"`
}

// Do decodes {"name": …, "items": [numbers]}, adds the items up and sorts
// them, and returns that as JSON. Its error is the decoder's or the encoder's.
func Do(input []byte) ([]byte, error) {
	var o order
	if err := json.Unmarshal(input, &o); err != nil {
		return nil, err
	}
	t := total{Name: o.Name, Count: len(o.Items), Sorted: slices.Sorted(slices.Values(o.Items))}
	for _, v := range o.Items {
		t.Sum += v
	}
	if t.Count > 0 {
		t.Mean = t.Sum / float64(t.Count)
	}
	return json.Marshal(t)
}
