package httpapi

import (
	"encoding/base64"
	"strconv"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
)

// A cursor is where a page ended, as text that clients pass back unread.
func cursor(at string) string { return base64.RawURLEncoding.EncodeToString([]byte(at)) }

func openCursor(s string) (string, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return "", badCursor()
	}
	return string(b), nil
}

// numberCursor reads a cursor that holds a number; otherwise if it is empty.
func numberCursor(at string, otherwise int64) (int64, error) {
	if at == "" {
		return otherwise, nil
	}
	n, ok := number(at)
	if !ok {
		return 0, badCursor()
	}
	return n, nil
}

// number reads an integer of 0 or more as it is written in JSON, and so in a
// query: no sign, no zeros before it.
func number(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && strconv.FormatInt(n, 10) == s
}

func badCursor() error {
	return carrel.Fail("httpapi.page", abi.BadRequest, "after is not what a list returned as next")
}

// pageOf makes a page of rows that were read with one more than limit.
func pageOf[R, T any](rows []R, limit int, item func(R) T, at func(R) string) client.Page[T] {
	p := client.Page[T]{Data: make([]T, 0, len(rows))}
	for i, r := range rows {
		if i == limit {
			p.Next = cursor(at(rows[i-1]))
			break
		}
		p.Data = append(p.Data, item(r))
	}
	return p
}
