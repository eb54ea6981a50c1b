// Package proto holds Pliant's text of the CSI contract equal to the standard's.
package proto

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// What Pliant's text has and the standard's 1.13 has not: the volume condition of 1.12, which callers
// still read. In its places the standard has reserved numbers.
var ours = []string{
	"enum csi.v1.ControllerServiceCapability.RPC.Type VOLUME_CONDITION = 11",
	"enum csi.v1.NodeServiceCapability.RPC.Type VOLUME_CONDITION = 4",
	"message csi.v1.ControllerGetVolumeResponse.VolumeStatus field volume_condition = 2 optional csi.v1.VolumeCondition",
	"message csi.v1.ListVolumesResponse.VolumeStatus field volume_condition = 2 optional csi.v1.VolumeCondition",
	"message csi.v1.NodeGetVolumeStatsResponse field volume_condition = 2 optional csi.v1.VolumeCondition",
	"message csi.v1.VolumeCondition",
	"message csi.v1.VolumeCondition field abnormal = 1 optional bool",
	"message csi.v1.VolumeCondition field message = 2 optional string",
}

// What the standard has and Pliant's text has not: those reserved numbers, and the marks of alpha
// features, which nothing on the wire depends on.
var theirs = []string{
	"enum csi.v1.ControllerServiceCapability.RPC.Type reserved 11",
	"enum csi.v1.NodeServiceCapability.RPC.Type reserved 4",
	"extension csi.v1.alpha_enum = 1060 of google.protobuf.EnumOptions optional bool",
	"extension csi.v1.alpha_enum_value = 1060 of google.protobuf.EnumValueOptions optional bool",
	"extension csi.v1.alpha_field = 1060 of google.protobuf.FieldOptions optional bool",
	"extension csi.v1.alpha_message = 1060 of google.protobuf.MessageOptions optional bool",
	"extension csi.v1.alpha_method = 1060 of google.protobuf.MethodOptions optional bool",
	"extension csi.v1.alpha_service = 1060 of google.protobuf.ServiceOptions optional bool",
	"message csi.v1.ControllerGetVolumeResponse.VolumeStatus reserved 2",
	"message csi.v1.ListVolumesResponse.VolumeStatus reserved 2",
	"message csi.v1.NodeGetVolumeStatsResponse reserved 2",
}

func TestContractIsTheStandards(t *testing.T) {
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(
		&protocompile.SourceResolver{ImportPaths: []string{"../../proto"}})}
	files, err := compiler.Compile(context.Background(), "csi.proto")
	if err != nil {
		t.Fatal(err)
	}
	we, they := dump(files[0]), dump(csi.File_csi_proto)
	if len(they) < 400 {
		t.Fatalf("the standard's descriptor has only %d lines", len(they))
	}
	compare(t, "only in proto/csi.proto", without(we, they), ours)
	compare(t, "only in the standard", without(they, we), theirs)
}

// Which messages are kept from being printed depends on this mark alone.
func TestEveryMapOfSecretsIsMarked(t *testing.T) {
	for _, line := range dump(csi.File_csi_proto) {
		if strings.Contains(line, " field secrets ") != strings.HasSuffix(line, " secret") {
			t.Error(line)
		}
	}
}

func compare(t *testing.T, where string, found, expected []string) {
	t.Helper()
	for _, line := range without(found, expected) {
		t.Errorf("%s, and not listed here: %s", where, line)
	}
	for _, line := range without(expected, found) {
		t.Errorf("listed here, but not %s: %s", where, line)
	}
}

func without(lines, others []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return slices.Contains(others, line)
	})
}

// One line for each thing that the wire or the generated code depends on.
func dump(file protoreflect.FileDescriptor) []string {
	lines := []string{fmt.Sprintf("package %s syntax %s", file.Package(), file.Syntax())}
	add := func(format string, values ...any) { lines = append(lines, fmt.Sprintf(format, values...)) }
	each(file.Extensions(), func(extension protoreflect.ExtensionDescriptor) {
		add("extension %s = %d of %s %s %s", extension.FullName(), extension.Number(),
			extension.ContainingMessage().FullName(), extension.Cardinality(), kind(extension))
	})
	each(file.Services(), func(service protoreflect.ServiceDescriptor) {
		each(service.Methods(), func(method protoreflect.MethodDescriptor) {
			add("method %s(%s, stream %t) returns (%s, stream %t)",
				method.FullName(), method.Input().FullName(), method.IsStreamingClient(),
				method.Output().FullName(), method.IsStreamingServer())
		})
	})
	enums(file.Enums(), add)
	messages(file.Messages(), add)
	return lines
}

func messages(all protoreflect.MessageDescriptors, add func(string, ...any)) {
	each(all, func(message protoreflect.MessageDescriptor) {
		name := message.FullName()
		add("message %s", name)
		each(message.Fields(), func(field protoreflect.FieldDescriptor) {
			line := fmt.Sprintf("message %s field %s = %d %s %s",
				name, field.Name(), field.Number(), field.Cardinality(), kind(field))
			if oneof := field.ContainingOneof(); oneof != nil {
				line += " in " + string(oneof.Name())
			}
			if isSecret(field) {
				line += " secret"
			}
			add("%s", line)
		})
		for i := range message.ReservedRanges().Len() {
			for n := message.ReservedRanges().Get(i)[0]; n < message.ReservedRanges().Get(i)[1]; n++ {
				add("message %s reserved %d", name, n)
			}
		}
		enums(message.Enums(), add)
		messages(message.Messages(), add)
	})
}

func enums(all protoreflect.EnumDescriptors, add func(string, ...any)) {
	each(all, func(enum protoreflect.EnumDescriptor) {
		each(enum.Values(), func(value protoreflect.EnumValueDescriptor) {
			add("enum %s %s = %d", enum.FullName(), value.Name(), value.Number())
		})
		for i := range enum.ReservedRanges().Len() {
			for n := enum.ReservedRanges().Get(i)[0]; n <= enum.ReservedRanges().Get(i)[1]; n++ {
				add("enum %s reserved %d", enum.FullName(), n)
			}
		}
	})
}

func kind(field protoreflect.FieldDescriptor) string {
	switch {
	case field.IsMap():
		return fmt.Sprintf("map<%s, %s>", kind(field.MapKey()), kind(field.MapValue()))
	case field.Message() != nil:
		return string(field.Message().FullName())
	case field.Enum() != nil:
		return string(field.Enum().FullName())
	default:
		return field.Kind().String()
	}
}

// Whether the field carries the csi_secret option. It is looked up by its number in the encoded
// options, because each side declares the extension itself.
func isSecret(field protoreflect.FieldDescriptor) bool {
	options, err := proto.Marshal(field.Options())
	for err == nil && len(options) > 0 {
		number, _, length := protowire.ConsumeField(options)
		if number == csi.E_CsiSecret.TypeDescriptor().Number() {
			return true
		}
		err = protowire.ParseError(length)
		options = options[max(length, 0):]
	}
	return false
}

type list[T any] interface {
	Len() int
	Get(int) T
}

func each[T any](all list[T], visit func(T)) {
	for i := range all.Len() {
		visit(all.Get(i))
	}
}
