// Package tools pins the versions of the programs that check this repository, in
// a module of its own, so that what they depend on stays out of the library's
// go.mod. The tool directives in go.mod name them; scripts/tool.sh builds them.
package tools
