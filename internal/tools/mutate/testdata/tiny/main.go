package main

import "fmt"

func main() {
	fmt.Println(variable)
	fmt.Println(ordered(1, 1), ordered(1, 2))
	fmt.Println(logical(true, false), logical(false, true))
	fmt.Println(generic(1.5, 1.5))
	fmt.Println(condition(nil), condition(map[string]bool{"y": true}))
	fmt.Println(removed())
	fmt.Println(flipped())
}
