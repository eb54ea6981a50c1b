// Writes what Kubernetes' own library reads in quantities: a line each, the text in JSON and what it means.
//
// That is a whole number, rounded up as Quantity.Value() does; "capped" where the library has lowered a size to the
// largest that it knows; "negative"; or "error". The inputs are the same in each run.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/inf.v0"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The parser refuses more than these of its own accord; see crates/volume/src/bytes/quantity.rs.
const (
	longest         = 64
	largestExponent = 40
)

var (
	signs    = []string{"", "+", "-"}
	decimals = []string{"n", "u", "m", "", "k", "M", "G", "T", "P", "E"}
	binaries = []string{"Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	suffixes = append(append(append([]string{}, decimals...), binaries...),
		"e0", "E0", "e1", "E1", "e+3", "E+3", "e-3", "E-3", "e03", "e-0", "e9", "e-9", "e10", "e18", "e19", "e-18", "e-19",
		"e40", "E40", "e-40", "E-40", "e+40")
	// No suffixes, though some look like one.
	others = []string{"K", "g", "t", "p", "KI", "ki", "kI", "mi", "gi", "Gib", "GiB", "GB", "B", "b", "i", "ni", "ui", "nn",
		"Kii", "Ki3", "mm", "e", "e+", "e-", "E+", "E-", "ee1", "e1e1", "e1.5", "e1.", "e 1", "e+-1", "e--1", "e1Ki", "Kie1",
		"me1", "e1m", "Eie1", "Ee1", "E1E", "x", " ", " Gi", "\t", "\n", "_", ",5", "µ", "é", "Ⅻ", "\x00"}
	numbers = []string{"0", "00", "0.0", "1", "01", "1.", "01.", "1.0", ".5", "0.5", "1.5", "0.1", "1.1", "1.7", "2.3", "9.99",
		"10", "12", "1000", "1023", "1024", "1025", "4096", "1000000", "123456789", "999999999999999", "123456789012345678",
		"1181116006400", "107374182400", "1869169767219200", "11918534246400", "0.001", "0.0009765625", "0.00097656249",
		"0.000000001", "0.0000000001", "0.00000000000000000000000000000000000000001", "0.999999999", "0.9999999999999999999999",
		"1.0000000000000000000000000000000000000000000001", "7.999999999999999999", "7.9999999999999999999999", "8", "8.000001",
		"9223372036854775806", "9223372036854775807", "9223372036854775807.1", "9223372036854775808", "18446744073709551615",
		"18446744073709551616", "9007199254740991", "9007199254740992", "9007199254740991.999", "9007199254740991.9999",
		"340282366920938463463374607431768211455", "340282366920938463463374607431768211456",
		"99999999999999999999999999999999999999999999999999"}
	odd = []string{"", "+", "-", ".", "+.", "-.", "..", "+-1", "-+1", "--1", "++1", "1.2.3", "1..2", "1+1", "1-1", " 1", "1 ", "1 Gi",
		"Gi", "m", "e3", "E", ".Gi", ".e3", "-Gi", "NaN", "nan", "inf", "Inf", "infinity", "0x10", "0b1", "0o7", "1_000", "1,000",
		"1e", "null", "true", "10%", "½", "١", "１", "Infinity", "1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i", "1i", "-3.01i",
		"-3.01e-", "1e-1", "500n", "3u", "1e9", "1E9", "12e6", "1e10", "+1Gi", ".5Gi", "-1Gi", "1GiB", "100e39", "1E18", "1e18"}
)

func main() {
	seen := map[string]bool{}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	write := func(text string) {
		if seen[text] || !isJudged(text) {
			return
		}
		seen[text] = true
		line, err := json.Marshal(text)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(out, "%s %s\n", line, meaning(text))
	}
	for _, text := range odd {
		write(text)
	}
	for _, number := range numbers {
		for _, suffix := range suffixes {
			write(number + suffix)
		}
		write("+" + number + "Gi")
		write("-" + number)
		write("-" + number + "m")
		write("-" + number + "Ki")
	}
	for _, number := range []string{"1", "1.5", ".5", "0"} {
		for _, suffix := range others {
			write(number + suffix)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 1500 {
		write(randomQuantity(random))
	}
	for range 800 {
		write(randomText(random))
	}
}

// A sign, a number and a suffix that the grammar knows.
func randomQuantity(random *rand.Rand) string {
	digits := func(most int) string {
		var text strings.Builder
		for range random.IntN(most + 1) {
			text.WriteByte(byte('0' + random.IntN(10)))
		}
		return text.String()
	}
	number := digits(20)
	if random.IntN(2) == 0 {
		number += "." + digits(24)
	}
	sign := ""
	if random.IntN(8) == 0 {
		sign = signs[random.IntN(len(signs))]
	}
	return sign + number + suffixes[random.IntN(len(suffixes))]
}

// The characters of quantities in any order.
func randomText(random *rand.Rand) string {
	const of = "0123456789012345678901234567890123456789..+-eEinumkKMGTP "
	text := make([]byte, 1+random.IntN(8))
	for at := range text {
		text[at] = of[random.IntN(len(of))]
	}
	return string(text)
}

var exponent = regexp.MustCompile(`[eE]([+-]?[0-9]+)$`)

// Whether the parser leaves a text to the rules of Kubernetes.
func isJudged(text string) bool {
	if len(text) > longest {
		return false
	}
	found := exponent.FindStringSubmatch(text)
	if found == nil {
		return true
	}
	number, err := strconv.Atoi(found[1])
	return err == nil && number >= -largestExponent && number <= largestExponent
}

func meaning(text string) string {
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return "error"
	}
	if quantity.Sign() < 0 {
		return "negative"
	}
	value, isBinary := quantity.Value(), quantity.Format == resource.BinarySI
	exact := quantity.AsDec()
	if isBinary && exact.Cmp(inf.NewDec(math.MaxInt64, 0)) == 0 {
		return "capped"
	}
	whole := new(inf.Dec).Round(exact, 0, inf.RoundCeil).UnscaledBig()
	if whole.IsInt64() && whole.Cmp(big.NewInt(value)) != 0 {
		panic(fmt.Sprintf("%q is %v, and its value %d", text, whole, value))
	}
	return whole.String()
}
