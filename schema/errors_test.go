package schema_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/millbridge/millbridge/schema"
	"pgregory.net/rapid"
)

func TestKindOf(t *testing.T) {
	t.Parallel()
	invalid := schema.CheckTarget("A")
	permanent := schema.WithKind(schema.Permanent, io.EOF)
	for name, tt := range map[string]struct {
		err  error
		want schema.ErrorKind
	}{
		"nil":                     {nil, schema.Temporary},
		"unmarked":                {io.EOF, schema.Temporary},
		"deadline":                {fmt.Errorf("call: %w", context.DeadlineExceeded), schema.Temporary},
		"cancelled":               {fmt.Errorf("call: %w", context.Canceled), schema.Shutdown},
		"invalid":                 {fmt.Errorf("publish: %w", invalid), schema.Permanent},
		"marked":                  {permanent, schema.Permanent},
		"wrapped":                 {fmt.Errorf("a: %w", fmt.Errorf("b: %w", permanent)), schema.Permanent},
		"outermost counts":        {schema.WithKind(schema.NotMine, fmt.Errorf("a: %w", permanent)), schema.NotMine},
		"mark over invalid":       {schema.WithKind(schema.Temporary, invalid), schema.Temporary},
		"mark over cancelled":     {schema.WithKind(schema.Permanent, context.Canceled), schema.Permanent},
		"in a join":               {errors.Join(io.EOF, permanent), schema.Permanent},
		"first of a join counts":  {errors.Join(schema.WithKind(schema.Temporary, io.EOF), permanent), schema.Temporary},
		"lost without wrapping":   {fmt.Errorf("a: %v", permanent), schema.Temporary},
		"undecodable is decisive": {func() error { _, err := schema.Decode("", nil, nil); return err }(), schema.Permanent},
	} {
		if got := schema.KindOf(tt.err); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	if schema.WithKind(schema.Permanent, nil) != nil {
		t.Error("a mark makes an error of nil")
	}
	if !errors.Is(permanent, io.EOF) || permanent.Error() != "EOF" {
		t.Errorf("the mark changes the error: %v", permanent)
	}
}

func TestGone_is_a_mark_of_its_own(t *testing.T) {
	t.Parallel()
	gone := schema.Gone(io.EOF)
	for name, tt := range map[string]struct {
		err  error
		kind schema.ErrorKind
		gone bool
	}{
		"gone":                {fmt.Errorf("a: %w", gone), schema.Permanent, true},
		"snoozed over gone":   {schema.Snooze(gone, time.Minute), schema.Temporary, false},
		"permanent over gone": {schema.WithKind(schema.Permanent, gone), schema.Permanent, false},
		"gone over cancelled": {schema.Gone(schema.Cancel(io.EOF)), schema.Permanent, true},
		"permanent":           {schema.WithKind(schema.Permanent, io.EOF), schema.Permanent, false},
		"nil":                 {schema.Gone(nil), schema.Temporary, false},
	} {
		if schema.KindOf(tt.err) != tt.kind || schema.IsGone(tt.err) != tt.gone || schema.IsCancel(tt.err) {
			t.Errorf("%s: kind %v, gone %v", name, schema.KindOf(tt.err), schema.IsGone(tt.err))
		}
	}
	if schema.Gone(nil) != nil || !errors.Is(gone, io.EOF) || gone.Error() != "EOF" {
		t.Errorf("the mark changes the error: %v", gone)
	}
}

func TestSnooze_and_Cancel_are_marks_of_their_own(t *testing.T) {
	t.Parallel()
	snoozed, cancelled := schema.Snooze(io.EOF, time.Minute), schema.Cancel(io.EOF)
	after := schema.RetryAfter(io.EOF, time.Second)
	for name, tt := range map[string]struct {
		err    error
		kind   schema.ErrorKind
		snooze time.Duration // -1: none
		after  time.Duration
		cancel bool
	}{
		"snoozed":                {fmt.Errorf("a: %w", snoozed), schema.Temporary, time.Minute, 0, false},
		"snoozed for nothing":    {schema.Snooze(io.EOF, -1), schema.Temporary, 0, 0, false},
		"cancelled":              {fmt.Errorf("a: %w", cancelled), schema.Permanent, -1, 0, true},
		"retry after":            {after, schema.Temporary, -1, time.Second, false},
		"permanent over snoozed": {schema.WithKind(schema.Permanent, snoozed), schema.Permanent, -1, 0, false},
		"snoozed over cancelled": {schema.Snooze(cancelled, time.Minute), schema.Temporary, time.Minute, 0, false},
		"permanent over cancel":  {schema.WithKind(schema.Permanent, cancelled), schema.Permanent, -1, 0, false},
		"unmarked":               {io.EOF, schema.Temporary, -1, 0, false},
		"nil":                    {nil, schema.Temporary, -1, 0, false},
	} {
		snooze, isSnooze := schema.SnoozeOf(tt.err)
		wait, isAfter := schema.RetryAfterOf(tt.err)
		if schema.KindOf(tt.err) != tt.kind || isSnooze != (tt.snooze >= 0) || snooze != max(tt.snooze, 0) ||
			isAfter != (tt.after > 0) || wait != tt.after || schema.IsCancel(tt.err) != tt.cancel {
			t.Errorf("%s: kind %v, snooze %v %v, after %v %v, cancel %v", name, schema.KindOf(tt.err), snooze, isSnooze, wait, isAfter, schema.IsCancel(tt.err))
		}
	}
	if schema.Snooze(nil, 1) != nil || schema.Cancel(nil) != nil {
		t.Error("a mark makes an error of nil")
	}
	if !errors.Is(snoozed, io.EOF) || snoozed.Error() != "EOF" || cancelled.Error() != "EOF" {
		t.Errorf("the mark changes the error: %v, %v", snoozed, cancelled)
	}
}

func TestErrorKind_String(t *testing.T) {
	t.Parallel()
	for k, want := range map[schema.ErrorKind]string{schema.Temporary: "temporary", schema.Permanent: "permanent", schema.Shutdown: "shutdown", schema.NotMine: "not_mine", 9: "ErrorKind(9)"} {
		if k.String() != want {
			t.Errorf("%d is %q, want %q", k, k, want)
		}
	}
}

func TestReason(t *testing.T) {
	t.Parallel()
	path := &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}
	for want, err := range map[string]error{
		"":           nil,
		"error: a b": errors.New("a\nb\x00"),
		"fs.PathError: open x: file does not exist":      path,
		"fs.PathError: run: open x: file does not exist": fmt.Errorf("run: %w", schema.WithKind(schema.Permanent, path)),
		"error: EOF EOF": errors.Join(io.EOF, io.EOF),
		"schema.ValidationError: invalid message: name: is empty": schema.WithKind(schema.Permanent, schema.CheckName("")),
	} {
		if got := schema.Reason(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if n := utf8.RuneCountInString(schema.Reason(errors.New(strings.Repeat("é", 5000)))); n != schema.MaxReason {
		t.Errorf("a long reason has %d characters", n)
	}
}

func TestOneLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "a\r\nb": "a  b", "\x00a\x00": "a", "\x1b[31mred": "[31mred", "\xff": "?", "a\u2028b\u2029c\u0085d": "a b c d", " x ": "x", "é😀": "é😀",
	} {
		if got := schema.OneLine(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := schema.OneLine(rapid.OneOf(genBytes, rapid.String()).Draw(t, "s"))
		if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) || schema.OneLine(s) != s {
			t.Fatalf("%q", s)
		}
	})
}
