// Package rules tests promlock's alert rules and dashboard with Prometheus' own parser and engine,
// on which promlock does not depend.
package rules
