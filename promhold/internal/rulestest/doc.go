// Package rulestest tests promhold's alert rules and dashboard with Prometheus' own parser and engine. It is a module of its
// own, so that promhold does not depend on those.
package rulestest
