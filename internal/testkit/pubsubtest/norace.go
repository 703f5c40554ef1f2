//go:build unix && !race

package pubsubtest

func suppressSuiteRace() {}
