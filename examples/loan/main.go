package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers/saga"
)

func main() {
	dir, err := os.MkdirTemp("", "millbridge-loan-")
	check(err)
	defer os.RemoveAll(dir)
	server := httptest.NewServer(newTown())
	defer server.Close()
	ctx := context.Background()
	a, err := open(ctx, filepath.Join(dir, "data"), server.URL, settings{patience: 48 * time.Hour})
	check(err)
	defer a.close()

	check(a.borrow(ctx, "loan-1", "Ada", "Middlemarch"))
	_, err = a.until(ctx, "loan-1", func(l saga.Saga[Loan]) bool { return slices.Equal(l.Waits, []string{"signal returned"}) })
	check(err)
	check(a.bringBack(ctx, "loan-1"))
	_, err = a.until(ctx, "loan-1", func(l saga.Saga[Loan]) bool { return l.Status.Ended() })
	check(err)

	events, err := a.in.Store.SagaHistory(ctx, "loan", "loan-1")
	check(err)
	for _, e := range events {
		line := fmt.Sprintf("%2d  %-8s %-9s %s", e.N, e.Step, e.Kind, e.Rationale)
		fmt.Println(strings.TrimRight(line, " "))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
