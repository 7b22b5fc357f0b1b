// A user's program on the Go client that openapi-generator makes of our OpenAPI document.
//
// main SERVER CA CERTIFICATE KEY
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"

	machines "example.org/twisted-exec/machines"
)

type machine = machines.DevIroncoreComputeV1alpha1Machine

func must(err error) {
	var refusal *machines.GenericOpenAPIError
	if errors.As(err, &refusal) {
		panic(fmt.Sprintf("%s: %s", err, refusal.Body()))
	} else if err != nil {
		panic(err)
	}
}

func expect(holds bool, found any) {
	if !holds {
		panic(fmt.Sprintf("unexpected: %+v", found))
	}
}

func connect(server, ca, certificate, key string) *machines.ComputeIroncoreDevV1alpha1APIService {
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(ca)
	must(err)
	roots.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(certificate, key)
	must(err)
	configuration := machines.NewConfiguration()
	configuration.Servers = machines.ServerConfigurations{{URL: server}}
	configuration.HTTPClient = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
	}}
	return machines.NewAPIClient(configuration).ComputeIroncoreDevV1alpha1API
}

func draft(name, app string, finalizers ...string) machine {
	var made machine
	metadata := machines.NewIoK8sApimachineryPkgApisMetaV1ObjectMeta()
	metadata.SetName(name)
	metadata.SetLabels(map[string]string{"app": app})
	metadata.SetFinalizers(finalizers)
	// Nothing else writes objects that have a pool.
	pool := machines.NewDevIroncoreComputeV1alpha1MachineSpecMachinePoolRef()
	pool.SetName("pool-a")
	class := machines.NewDevIroncoreComputeV1alpha1MachineSpecMachineClassRef()
	class.SetName("small")
	made.SetMetadata(*metadata)
	spec := machines.NewDevIroncoreComputeV1alpha1MachineSpec(*class)
	spec.SetMachinePoolRef(*pool)
	made.SetSpec(*spec)
	return made
}

func main() {
	api, ctx := connect(os.Args[1], os.Args[2], os.Args[3], os.Args[4]), context.Background()
	for _, each := range []machine{
		draft("web-1", "web"), draft("web-2", "web"), draft("db-1", "db", "example.org/backup"),
	} {
		created, _, err := api.CreateComputeIroncoreDevV1alpha1NamespacedMachine(ctx, "default").
			DevIroncoreComputeV1alpha1Machine(each).Execute()
		must(err)
		expect(created.Metadata.GetUid() != "", created)
	}
	selected, _, err := api.ListComputeIroncoreDevV1alpha1NamespacedMachine(ctx, "default").
		LabelSelector("app=web").Execute()
	must(err)
	expect(len(selected.Items) == 2 && selected.Items[0].Metadata.GetName() == "web-1", selected)
	everywhere, _, err := api.ListComputeIroncoreDevV1alpha1MachineForAllNamespaces(ctx).Limit(2).Execute()
	must(err)
	expect(len(everywhere.Items) == 2 && everywhere.Metadata.GetRemainingItemCount() == 1, everywhere)

	changed, _, err := api.PatchComputeIroncoreDevV1alpha1NamespacedMachine(ctx, "web-1", "default").
		Body(map[string]interface{}{"spec": map[string]interface{}{"power": "Off"}}).Execute()
	must(err)
	expect(changed.Spec.GetPower() == "Off", changed)

	// This client reads a response to its end before it returns it, and takes it for a list.
	_, response, _ := api.ListComputeIroncoreDevV1alpha1NamespacedMachine(ctx, "default").
		LabelSelector("app=web").Watch(true).TimeoutSeconds(1).
		ResourceVersion(selected.Metadata.GetResourceVersion()).Execute()
	var event struct {
		Type   string
		Object machine
	}
	must(json.NewDecoder(response.Body).Decode(&event))
	expect(event.Type == "MODIFIED" && event.Object.Spec.GetPower() == "Off", event)

	deleted, _, err := api.DeleteComputeIroncoreDevV1alpha1NamespacedMachine(ctx, "web-1", "default").
		PropagationPolicy("Background").Execute()
	must(err)
	status := deleted.IoK8sApimachineryPkgApisMetaV1Status
	expect(status != nil && status.GetStatus() == "Success", deleted)
	// A finalizer keeps the object, and the answer is the object itself.
	deleted, _, err = api.DeleteComputeIroncoreDevV1alpha1NamespacedMachine(ctx, "db-1", "default").Execute()
	must(err)
	kept := deleted.DevIroncoreComputeV1alpha1Machine
	expect(kept != nil && kept.Metadata.GetDeletionTimestamp() != "", deleted)
	_, _, err = api.PatchComputeIroncoreDevV1alpha1NamespacedMachine(ctx, "db-1", "default").
		Body(map[string]interface{}{"metadata": map[string]interface{}{"finalizers": nil}}).Execute()
	must(err)
	_, _, err = api.DeleteComputeIroncoreDevV1alpha1CollectionNamespacedMachine(ctx, "default").Execute()
	must(err)
	_, response, err = api.DeleteComputeIroncoreDevV1alpha1NamespacedMachine(ctx, "web-1", "default").Execute()
	expect(err != nil && response.StatusCode == 404, response)
	fmt.Println("done")
}
