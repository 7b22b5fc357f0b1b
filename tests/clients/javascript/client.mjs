// One column with @kubernetes/client-node; see tests/clients/scripts.py for what it prints.

import { EventEmitter } from 'node:events';
import { PassThrough } from 'node:stream';

import {
    Attach,
    AuthorizationV1Api,
    CoreV1Api,
    CustomObjectsApi,
    Exec,
    KubeConfig,
    KubernetesObjectApi,
    Log,
    PatchStrategy,
    Watch,
    setHeaderOptions,
} from '@kubernetes/client-node';

const [column, machine, mark] = process.argv.slice(2);
const namespace = process.env.NAMESPACE;
const group = 'compute.ironcore.dev';
const version = 'v1alpha1';
const plural = 'machines';
const machines = `/apis/${group}/${version}/namespaces/${namespace}/${plural}`;

const config = new KubeConfig();
config.loadFromDefault();

async function get() {
    const api = config.makeApiClient(CustomObjectsApi);
    const found = await api.listNamespacedCustomObject({ group, version, namespace, plural });
    for (const one of found.items) {
        console.log('machine', one.metadata.name, one.status.state);
    }
    const pods = await config.makeApiClient(CoreV1Api).listNamespacedPod({ namespace });
    for (const pod of pods.items) {
        console.log('pod', pod.metadata.name, pod.status.phase);
    }
}

function watch() {
    return new Promise((resolve, reject) => {
        let watching;
        const seen = (type, object) => {
            const label = object.metadata.labels?.tried;
            console.log(type === 'ADDED' ? 'watching' : `${type} ${label}`);
            if (label === mark) {
                resolve(); // before the abort, which it tells as an error
                watching.abort();
            }
        };
        new Watch(config)
            .watch(machines, { fieldSelector: `metadata.name=${machine}` }, seen, (error) =>
                reject(error ?? new Error('the watch ended')),
            )
            .then((controller) => (watching = controller));
    });
}

const wanted = (name, label) => ({
    apiVersion: `${group}/${version}`,
    kind: 'Machine',
    metadata: { name, namespace, labels: { a: label } },
    spec: { machineClassRef: { name: 'pty' } },
});

async function apply() {
    const api = config.makeApiClient(CustomObjectsApi);
    const name = `${machine}-applied`;
    const where = { group, version, namespace, plural };
    await api.createNamespacedCustomObject({ ...where, body: wanted(name, '1') });
    await api.patchNamespacedCustomObject(
        { ...where, name, body: wanted(name, '2') },
        setHeaderOptions('Content-Type', PatchStrategy.MergePatch),
    );
}

async function serverSideApply() {
    const api = KubernetesObjectApi.makeApiClient(config);
    const applied = (label, manager, force) =>
        api.patch(
            wanted(`${machine}-served`, label),
            undefined,
            undefined,
            manager,
            force,
            PatchStrategy.ServerSideApply,
        );
    await applied('1', 'one', false);
    try {
        await applied('2', 'two', false);
    } catch (error) {
        console.log('conflict', error.code);
    }
    await applied('2', 'two', true);
}

async function canI() {
    const resourceAttributes = {
        namespace,
        verb: 'create',
        group,
        resource: plural,
        subresource: 'exec',
    };
    const found = await config.makeApiClient(AuthorizationV1Api).createSelfSubjectAccessReview({
        body: { spec: { resourceAttributes } },
    });
    console.log(JSON.stringify(found.status.allowed));
}

async function logs() {
    const output = new Shown();
    await new Log(config).log(namespace, machine, 'console', output.stream, { follow: true });
    await output.until(answer);
    process.exit(); // version 2 lets nobody catch the error of an abort
}

// Consoles.

const answer = `${mark}42z`;
const question = `echo ${mark}$((6*7))z\n`;

// What a console prints, shown as it comes, with a terminal's size.
class Shown {
    constructor() {
        this.stream = new PassThrough();
        this.stream.columns = 80;
        this.stream.rows = 24;
        this.seen = '';
        this.changed = new EventEmitter();
        this.stream.on('data', (data) => {
            process.stdout.write(data);
            this.seen += data.toString('latin1');
            this.changed.emit('change');
        });
    }

    async until(text) {
        while (!this.seen.includes(text)) {
            await new Promise((resolve) => this.changed.once('change', resolve));
        }
    }
}

// The same, at the machines' own path.
function ofMachines(exec) {
    const { handler } = exec;
    const pods = `/api/v1/namespaces/${namespace}/pods`;
    exec.handler = {
        connect: (path, ...handlers) => handler.connect(path.replace(pods, machines), ...handlers),
    };
    return exec;
}

class Console {
    constructor() {
        this.output = new Shown();
        this.input = new PassThrough();
        this.status = new Promise((resolve) => (this.ended = resolve));
    }

    async open(way) {
        const { output, input } = this;
        const of = [namespace, machine, 'console'];
        if (way === 'attach') {
            this.socket = await new Attach(config).attach(...of, output.stream, null, input, true);
        } else {
            const exec = way === 'exec' ? new Exec(config) : ofMachines(new Exec(config));
            const command = ['console'];
            this.socket = await exec.exec(
                ...of,
                command,
                output.stream,
                null,
                input,
                true,
                this.ended,
            );
        }
        return this;
    }

    close() {
        this.socket.close();
    }
}

async function talk(way) {
    const opened = await new Console().open(way);
    opened.input.write(question);
    await opened.output.until(answer);
    opened.close();
}

async function endOfInput(way) {
    const opened = await new Console().open(way);
    opened.input.end(question);
    const status = await opened.status;
    console.log('\nstatus', status.status);
}

async function resize() {
    const opened = await new Console().open('exec');
    Object.assign(opened.output.stream, { columns: 101, rows: 31 });
    opened.output.stream.emit('resize');
    opened.input.write(
        `until [ "$(stty size)" = '31 101' ]; do sleep 0.1; done; echo ${mark}$((6*7))z\n`,
    );
    await opened.output.until(answer);
    opened.close();
}

async function exitStatus(way) {
    const opened = await new Console().open(way);
    opened.input.write('exit 7\n');
    const status = await opened.status;
    console.log('\nexit', status.details.causes[0].message);
}

const [what, way] = column.split('-');
const columns = {
    get,
    watch,
    apply,
    'server-side-apply': serverSideApply,
    'can-i': canI,
    logs,
    attach: () => talk('attach'),
    exec: () => talk('exec'),
    console: () => talk('console'),
    resize,
};
try {
    if (what === 'end') {
        await endOfInput(way);
    } else if (what === 'exit') {
        await exitStatus(way);
    } else {
        await columns[column]();
    }
} catch (error) {
    // What ws raises holds its whole socket; a line is enough.
    console.error(error.message ?? error);
    process.exitCode = 1;
}
