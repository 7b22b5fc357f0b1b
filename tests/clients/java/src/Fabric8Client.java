import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.GenericKubernetesResourceList;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.authorization.v1.SelfSubjectAccessReview;
import io.fabric8.kubernetes.api.model.authorization.v1.SelfSubjectAccessReviewBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.ContainerResource;
import io.fabric8.kubernetes.client.dsl.ExecWatch;
import io.fabric8.kubernetes.client.dsl.MixedOperation;
import io.fabric8.kubernetes.client.dsl.Resource;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.dsl.base.ResourceDefinitionContext;
import io.fabric8.kubernetes.client.utils.Serialization;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** One column with fabric8; see tests/clients/scripts.py for what it prints. */
public class Fabric8Client {
    static final String GROUP = "compute.ironcore.dev", VERSION = "v1alpha1";
    static final String NAMESPACE = System.getenv("NAMESPACE");
    static final long SECONDS = 120;

    static KubernetesClient client;

    public static void main(String[] words) throws Exception {
        String column = words[0], machine = words[1], mark = words[2];
        client = new KubernetesClientBuilder().build();
        switch (column) {
            case "get" -> get();
            case "watch" -> watch(machine, mark);
            case "apply" -> apply(machine + "-applied");
            case "server-side-apply" -> serverSideApply(machine + "-served");
            case "can-i" -> canI();
            case "logs" -> logs(machine, mark);
            case "attach", "exec" -> talk(column, machine, mark);
            case "resize" -> resize(machine, mark);
            case "exit-attach", "exit-exec" -> exitStatus(column.substring(5), machine);
            default -> throw new IllegalArgumentException(column);
        }
        System.out.flush();
        System.exit(0);
    }

    static Resource<GenericKubernetesResource> machine(String name) {
        return machines().inNamespace(NAMESPACE).withName(name);
    }

    static MixedOperation<
                    GenericKubernetesResource,
                    GenericKubernetesResourceList,
                    Resource<GenericKubernetesResource>>
            machines() {
        return client.genericKubernetesResources(
                new ResourceDefinitionContext.Builder()
                        .withGroup(GROUP)
                        .withVersion(VERSION)
                        .withKind("Machine")
                        .withPlural("machines")
                        .withNamespaced(true)
                        .build());
    }

    static void get() {
        System.out.println("version " + client.getKubernetesVersion().getGitVersion());
        System.out.println("groups " + client.getApiGroups().getGroups().size());
        for (var each : machines().inNamespace(NAMESPACE).list().getItems()) {
            String state = each.get("status", "state");
            System.out.println("machine " + each.getMetadata().getName() + " " + state);
        }
        for (Pod each : client.pods().inNamespace(NAMESPACE).list().getItems()) {
            String phase = each.getStatus().getPhase();
            System.out.println("pod " + each.getMetadata().getName() + " " + phase);
        }
    }

    static void watch(String name, String mark) throws Exception {
        CountDownLatch seen = new CountDownLatch(1);
        var watcher =
                new Watcher<GenericKubernetesResource>() {
                    @Override
                    public void eventReceived(Action action, GenericKubernetesResource each) {
                        var labels = each.getMetadata().getLabels();
                        String label = labels == null ? null : labels.get("tried");
                        boolean isFirst = action == Action.ADDED;
                        System.out.println(isFirst ? "watching" : action + " " + label);
                        if (mark.equals(label)) {
                            seen.countDown();
                        }
                    }

                    @Override
                    public void onClose(WatcherException cause) {}
                };
        try (var watch = machine(name).watch(watcher)) {
            within(seen.await(SECONDS, TimeUnit.SECONDS));
        }
    }

    static GenericKubernetesResource desired(String name, String label) {
        var body =
                Map.of(
                        "apiVersion", GROUP + "/" + VERSION,
                        "kind", "Machine",
                        "metadata",
                                Map.of(
                                        "name", name,
                                        "namespace", NAMESPACE,
                                        "labels", Map.of("a", label)),
                        "spec", Map.of("machineClassRef", Map.of("name", "pty")));
        return Serialization.unmarshal(
                Serialization.asJson(body), GenericKubernetesResource.class);
    }

    static void apply(String name) {
        client.resource(desired(name, "1")).create();
        machine(name)
                .patch(
                        PatchContext.of(PatchType.JSON_MERGE),
                        "{\"metadata\":{\"labels\":{\"a\":\"2\"}}}");
    }

    static void serverSideApply(String name) {
        client.resource(desired(name, "1")).fieldManager("one").serverSideApply();
        var changed = client.resource(desired(name, "2")).fieldManager("two");
        try {
            changed.serverSideApply();
        } catch (KubernetesClientException error) {
            System.out.println("conflict " + error.getCode());
        }
        changed.forceConflicts().serverSideApply();
    }

    static void canI() {
        SelfSubjectAccessReview review =
                new SelfSubjectAccessReviewBuilder()
                        .withNewSpec()
                        .withNewResourceAttributes()
                        .withNamespace(NAMESPACE)
                        .withVerb("create")
                        .withGroup(GROUP)
                        .withResource("machines")
                        .withSubresource("exec")
                        .endResourceAttributes()
                        .endSpec()
                        .build();
        var answer = client.authorization().v1().selfSubjectAccessReview().create(review);
        System.out.println(answer.getStatus().getAllowed());
    }

    static void logs(String machine, String mark) throws Exception {
        Shown shown = new Shown(mark + "42z");
        try (var log = console(machine).watchLog(shown)) {
            shown.await();
        }
    }

    // Consoles.

    /** Prints what arrives, and waits for a text. */
    static class Shown extends ByteArrayOutputStream {
        private final String text;
        private final CountDownLatch seen = new CountDownLatch(1);

        Shown(String text) {
            this.text = text;
        }

        @Override
        public synchronized void write(byte[] data, int start, int length) {
            super.write(data, start, length);
            System.out.write(data, start, length);
            System.out.flush();
            if (toString(StandardCharsets.UTF_8).contains(text)) {
                seen.countDown();
            }
        }

        @Override
        public synchronized void write(int data) {
            write(new byte[] {(byte) data}, 0, 1);
        }

        void await() throws Exception {
            within(seen.await(SECONDS, TimeUnit.SECONDS));
        }
    }

    static void within(boolean isDone) throws TimeoutException {
        if (!isDone) {
            throw new TimeoutException("nothing within " + SECONDS + " seconds");
        }
    }

    static ContainerResource console(String machine) {
        return client.pods().inNamespace(NAMESPACE).withName(machine).inContainer("console");
    }

    static ExecWatch open(String way, String machine, Shown shown) {
        var opening = console(machine).redirectingInput().writingOutput(shown).withTTY();
        return way.equals("attach") ? opening.attach() : opening.exec("console");
    }

    static void type(ExecWatch opened, String text) throws Exception {
        opened.getInput().write(text.getBytes(StandardCharsets.UTF_8));
        opened.getInput().flush();
    }

    static String question(String mark) {
        return "echo " + mark + "$((6*7))z\n";
    }

    static void talk(String way, String machine, String mark) throws Exception {
        Shown shown = new Shown(mark + "42z");
        try (ExecWatch opened = open(way, machine, shown)) {
            type(opened, question(mark));
            shown.await();
        }
    }

    static void resize(String machine, String mark) throws Exception {
        Shown shown = new Shown(mark + "42z");
        try (ExecWatch opened = open("attach", machine, shown)) {
            opened.resize(101, 31);
            type(
                    opened,
                    "until [ \"$(stty size)\" = '31 101' ]; do sleep 0.1; done; " + question(mark));
            shown.await();
        }
    }

    static void exitStatus(String way, String machine) throws Exception {
        try (ExecWatch opened = open(way, machine, new Shown("exit"))) {
            type(opened, "exit 7\n");
            System.out.println("\nexit " + opened.exitCode().get(SECONDS, TimeUnit.SECONDS));
        }
    }
}
