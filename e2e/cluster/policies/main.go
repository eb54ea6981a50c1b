// Evaluates the admission policies of the rendered chart as the API server does, with its own compiler and without a
// cluster: which writes of which account are taken. `run` calls it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	celgo "github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/admissionregistration/v1"
	authv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// A write, and whether it is to be taken.
type write struct {
	Name, User, Node, Group, Resource, Sub, Op, Namespace, ObjName string
	Object, Old                                                    map[string]any
	Expect                                                         bool
}

// A policy that is compiled.
type policy struct {
	v1.ValidatingAdmissionPolicy
	conditions, validations cel.ConditionEvaluator
}

// What the compiler calls an expression.
type expression struct {
	name, text string
	types      []*celgo.Type
}

func (e *expression) GetExpression() string      { return e.text }
func (e *expression) GetName() string            { return e.name }
func (e *expression) ReturnTypes() []*celgo.Type { return e.types }

var (
	anything = []*celgo.Type{celgo.AnyType, celgo.DynType}
	truth    = []*celgo.Type{celgo.BoolType}
	text     = []*celgo.Type{celgo.StringType}
	options  = cel.OptionalVariableDeclarations{HasAuthorizer: true}
)

const stored = environment.StoredExpressions

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func main() {
	rendered, err := os.ReadFile(os.Args[1])
	must(err)
	cases, err := os.ReadFile(os.Args[2])
	must(err)
	var writes []write
	must(json.Unmarshal(cases, &writes))
	policies, wrong := compiled(string(rendered))
	for _, one := range writes {
		why, failed := refusals(policies, one)
		if failed || (len(why) == 0) != one.Expect {
			wrong++
			fmt.Printf("%s: taken is %v, and should be %v: %s\n", one.Name, len(why) == 0, one.Expect, strings.Join(why, "; "))
		}
	}
	fmt.Printf("%d policies, %d writes, %d not as they should be\n", len(policies), len(writes), wrong)
	if wrong > 0 || len(policies) == 0 {
		os.Exit(1)
	}
}

// compiled: the policies of a rendered chart, and how many of their expressions are none.
func compiled(rendered string) (policies []policy, wrong int) {
	for _, document := range strings.Split(rendered, "\n---\n") {
		one := policy{}
		if yaml.Unmarshal([]byte(document), &one.ValidatingAdmissionPolicy) != nil || one.Kind != "ValidatingAdmissionPolicy" {
			continue
		}
		compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
		must(err)
		var errors []error
		note := func(result cel.CompilationResult) {
			if result.Error != nil {
				errors = append(errors, result.Error)
			}
		}
		for _, variable := range one.Spec.Variables {
			note(compiler.CompileAndStoreVariable(&expression{variable.Name, variable.Expression, anything}, options, stored))
		}
		var conditions, validations []cel.ExpressionAccessor
		for _, condition := range one.Spec.MatchConditions {
			conditions = append(conditions, &expression{condition.Name, condition.Expression, truth})
		}
		for _, validation := range one.Spec.Validations {
			validations = append(validations, &expression{validation.Message, validation.Expression, truth})
			if validation.MessageExpression != "" {
				note(compiler.CompileCELExpression(&expression{"message", validation.MessageExpression, text}, options, stored))
			}
		}
		one.conditions = compiler.CompileCondition(conditions, options, stored)
		one.validations = compiler.CompileCondition(validations, options, stored)
		errors = append(errors, slices.Concat(one.conditions.CompilationErrors(), one.validations.CompilationErrors())...)
		for _, err := range errors {
			fmt.Printf("%s: %v\n", one.Name, err)
		}
		policies, wrong = append(policies, one), wrong+len(errors)
	}
	return policies, wrong
}

// refusals: why a write is not taken, and whether an expression failed over it: that refuses, too, and says nothing.
func refusals(policies []policy, one write) (why []string, failed bool) {
	for _, policy := range policies {
		if !policy.isAbout(one) || !isTrue(evaluated(policy.conditions, one)) {
			continue
		}
		for number, result := range evaluated(policy.validations, one) {
			switch {
			case result.Error != nil:
				why, failed = append(why, policy.Name+": "+result.Error.Error()), true
			case result.EvalResult.Value() != true:
				why = append(why, policy.Name+": "+policy.Spec.Validations[number].Message)
			}
		}
	}
	return why, failed
}

func isTrue(results []cel.EvaluationResult) bool {
	return !slices.ContainsFunc(results, func(one cel.EvaluationResult) bool {
		return one.Error != nil || one.EvalResult.Value() != true
	})
}

func (p *policy) isAbout(one write) bool {
	resource := one.Resource
	if one.Sub != "" {
		resource += "/" + one.Sub
	}
	return slices.ContainsFunc(p.Spec.MatchConstraints.ResourceRules, func(rule v1.NamedRuleWithOperations) bool {
		names := rule.Resources
		return slices.Contains(rule.APIGroups, one.Group) && (slices.Contains(names, resource) || slices.Contains(names, "*/*"))
	})
}

func evaluated(expressions cel.ConditionEvaluator, one write) []cel.EvaluationResult {
	object := func(fields map[string]any) runtime.Object {
		if fields == nil {
			return nil
		}
		return &unstructured.Unstructured{Object: fields}
	}
	extra := map[string]authv1.ExtraValue{"authentication.kubernetes.io/credential-id": {"JTI=x"}}
	if one.Node != "" {
		extra["authentication.kubernetes.io/node-name"] = authv1.ExtraValue{one.Node}
	}
	request := &admissionv1.AdmissionRequest{
		Operation: admissionv1.Operation(one.Op), Namespace: one.Namespace, Name: one.ObjName, SubResource: one.Sub,
		Resource: metav1.GroupVersionResource{Group: one.Group, Version: "v1", Resource: one.Resource},
		UserInfo: authv1.UserInfo{Username: one.User, Extra: extra},
	}
	resource := schema.GroupVersionResource{Group: one.Group, Version: "v1", Resource: one.Resource}
	kind := schema.GroupVersionKind{Group: one.Group, Version: "v1", Kind: "Any"}
	now, old := object(one.Object), object(one.Old)
	attributes := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(now, old, kind, one.Namespace, one.ObjName, resource, one.Sub,
			admission.Operation(one.Op), nil, false, &user.DefaultInfo{Name: one.User}),
		VersionedKind: kind, VersionedObject: now, VersionedOldObject: old,
	}
	const budget = 10_000_000 // As the API server has for all expressions of a policy.
	results, _, err := expressions.ForInput(context.Background(), attributes, request, cel.OptionalVariableBindings{}, nil, budget)
	must(err)
	return results
}
