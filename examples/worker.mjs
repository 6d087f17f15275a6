// A worker in plain JavaScript: node 18 on, no packages.
//
//   PERDURE_URL=http://127.0.0.1:7373 PERDURE_KEY=pdk_... node examples/worker.mjs
//
// It works the queue `js`: the activity greet(name), and the workflow greeting(name), which calls it, sleeps, waits for
// the signal `go` and for a child. Kill it at any moment: the next one goes on from what is on disk.
const SERVER = process.env.PERDURE_URL ?? "http://127.0.0.1:7373";
const KEY = process.env.PERDURE_KEY;
const QUEUE = "js";
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// A request; while the server is away it is asked again, for what was done is found done.
async function call(method, path, body) {
  const headers = { "content-type": "application/json", ...(KEY && { authorization: `Bearer ${KEY}` }) };
  for (;;) {
    const answer = await fetch(SERVER + path, { method, headers, body: body && JSON.stringify(body) }).catch(() => null);
    if (answer?.ok) return answer.json();
    if (answer && answer.status !== 503) throw Object.assign(new Error("refused"), await answer.json());
    await pause(200);
  }
}

// Activities: functions of their arguments, and of what there is to know of the attempt

const activities = {
  async greet({ name }, attempt) {
    for (let step = 1; step <= 3; step++) {
      if ((await attempt.heartbeat({ step })).cancelled) throw Object.assign(new Error("stopped"), { name: "Cancelled" });
      await pause(10);
    }
    return `hello ${name}`;
  },
};

async function perform(worker, task) {
  const said = { epoch: worker.epoch, attempt: task.attempt };
  const say = (verb, more) => call("POST", `${worker.path}/tasks/${task.task_id}/${verb}`, { ...said, ...more });
  try {
    const attempt = { ...task, heartbeat: (details) => say("heartbeat", { details }) };
    await say("complete", { result: (await activities[task.activity](task.arguments, attempt)) ?? null });
  } catch (error) {
    if (error.status) throw error; // The server refused: another attempt is under way, or the lease is lost.
    await say("fail", { error: { type: error.name, message: error.message } });
  }
}

// Workflows: functions that are called anew with their history whenever they go on

const workflows = {
  async greeting({ name }, run) {
    const hello = await run.activity("greet", { name });
    await run.sleep(1);
    const word = await run.signal("go");
    return run.child("shout", { text: `${hello}, ${word}` });
  },
  async shout({ text }) {
    return text.toUpperCase();
  },
};

// One call of a workflow: events answer its calls by their places, one new fact may be added, and then it waits.
class Replay {
  constructor(claimed, now) {
    Object.assign(this, { claimed, now, used: {}, waiting: [], commands: [], isFact: false, at: claimed.created_at });
    this.answers = new Map(claimed.events.map((event) => [event.place, event]));
  }
  place(name) { // What a call is known by: its name, and the how-many-th of that name it is.
    const nth = (this.used[name] = (this.used[name] ?? 0) + 1);
    return nth === 1 ? name : `${name}#${nth}`;
  }
  taken(place) {
    const event = this.answers.get(place);
    this.at = event?.at ?? this.at; // Time goes by events, so it is the same on every replay.
    return event;
  }
  wait(shown) {
    this.waiting.push(shown);
    return new Promise(() => {});
  }
  add(fact) { // It becomes an event, with which the workflow is called anew.
    if (!this.isFact) this.commands.push(fact);
    this.isFact = true;
    return new Promise(() => {});
  }
  receive(place, shown, wanted) {
    const message = this.claimed.messages.find(wanted);
    return message ? this.add({ kind: "ReceiveMessage", place, number: message.number }) : this.wait(shown);
  }
  async begun(start, shown) {
    const end = this.taken(start.place);
    if (end?.failure) throw Object.assign(new Error(end.failure.message), { name: end.failure.type });
    if (end) return end.result;
    if (!(start.place in this.claimed.children)) this.commands.push(start);
    return this.receive(start.place, { ...shown, place: start.place }, (each) => each.place === start.place);
  }
  activity(name, args) {
    const start = { kind: "StartTask", place: this.place(name), activity: name, queue: QUEUE, arguments: args };
    return this.begun({ ...start, timeout: 60, heartbeat: 10 }, { kind: "activity", name });
  }
  child(workflow, input) {
    return this.begun({ kind: "StartChild", place: this.place(workflow), workflow, input }, { kind: "child", name: workflow });
  }
  async sleep(seconds) {
    const place = this.place("sleep");
    const fire_at = this.at + seconds * 1000;
    if (this.taken(place)) return undefined;
    return this.now < fire_at ? this.wait({ kind: "timer", place, until: fire_at }) : this.add({ kind: "FireTimer", place, fire_at });
  }
  async signal(name) {
    const place = this.place(name);
    const event = this.taken(place);
    if (event) return event.payload;
    return this.receive(place, { kind: "signal", place, name }, (each) => each.kind === "SignalSent" && each.name === name);
  }
}

async function advance(worker, claimed) {
  const replay = new Replay(claimed, worker.now());
  const stop = claimed.messages.find((each) => ["CancelRequest", "TerminateRequest"].includes(each.kind));
  let end = stop && { kind: "RunCancelled", reason: stop.reason ?? null };
  const code = stop ? null : workflows[claimed.workflow](claimed.input, replay).then(
    (result) => { end = { kind: "RunCompleted", result: result ?? null }; },
    (error) => { end = { kind: "RunFailed", error: { type: error.name, message: error.message } }; });
  await Promise.race([code, pause(0)]); // It has ended, or waits.
  const commands = end ? [...replay.commands, { kind: "CloseRun", end }] : replay.commands;
  const times = replay.waiting.map((each) => each.until).filter(Boolean);
  const park = { had: claimed.had, waiting: replay.waiting, wake_at: times.length ? Math.min(...times) : null };
  const run = { run_id: claimed.run_id, after_seq: claimed.seq, commands, then: end || replay.isFact ? "keep" : { park } };
  const { answers } = await call("POST", `${worker.path}/advance`, { epoch: worker.epoch, runs: [run] });
  if (answers[0].problem) console.error(`${claimed.id}: ${answers[0].problem.detail}`);
  if (answers[0].kept) await advance(worker, await read(worker, claimed.run_id)); // A new fact, or a message came first.
}

async function read(worker, runId) {
  const page = (after) => call("GET", `${worker.path}/runs/${runId}?epoch=${worker.epoch}&after=${after}`);
  const run = await page(0);
  for (let last = run; last.more; run.events.push(...last.events)) last = await page(run.events.at(-1).seq);
  return run;
}

// The worker: one loop that takes activities, one that takes runs, and a lease that is renewed

async function take(worker, verb, noun, id, work) {
  const held = new Set();
  while (!worker.isLost) {
    const asked = { epoch: worker.epoch, limit: 20, wait: 10, holding: [...held] };
    for (const each of (await call("POST", `${worker.path}/${verb}`, asked))[noun]) {
      held.add(each[id]);
      work(worker, each).catch((error) => worker.trouble(error)).finally(() => held.delete(each[id]));
    }
  }
}

async function work() {
  const names = Object.fromEntries([["greeting", "name"], ["shout", "text"]].map(([name, parameter]) => [name, { parameters: [{ name: parameter }] }]));
  const begun = { name: `node-${process.pid}`, queues: [QUEUE], workflows: names, activities: Object.keys(activities) };
  const { worker_id, epoch, lease, now } = await call("POST", "/v1/workers", begun);
  const ahead = now - Date.now();
  const worker = { epoch, path: `/v1/workers/${worker_id}`, isLost: false, now: () => Date.now() + ahead };
  worker.trouble = (error) => { worker.isLost ||= error.error === "LeaseLost"; console.error(error.detail ?? error); };
  const leave = () => {
    isLeaving = true;
    call("DELETE", `${worker.path}?epoch=${epoch}`).finally(() => process.exit(0));
  };
  process.once("SIGTERM", leave);
  console.log(JSON.stringify({ worker_id }));
  const renew = async () => {
    while (!worker.isLost) await call("POST", `${worker.path}/renew`, { epoch }).then(() => pause((lease * 1000) / 3));
  };
  // It carries hints, which this worker does without; when it breaks, others go on within seconds.
  const stream = async () => {
    const headers = { accept: "text/event-stream", ...(KEY && { authorization: `Bearer ${KEY}` }) };
    while (!worker.isLost) {
      const answer = await fetch(`${SERVER}${worker.path}/stream?epoch=${epoch}`, { headers }).catch(() => null);
      await answer?.text().catch(() => null);
      await pause(500);
    }
  };
  const loops = [renew(), stream(), take(worker, "claim-tasks", "tasks", "task_id", perform), take(worker, "claim-runs", "runs", "run_id", start)];
  await Promise.race(loops).catch((error) => worker.trouble(error));
  worker.isLost = true;
  process.off("SIGTERM", leave);
}

const start = async (worker, claimed) => advance(worker, claimed.more ? await read(worker, claimed.run_id) : claimed);

let isLeaving = false;
while (!isLeaving) await work().catch((error) => {
  console.error(error.detail ?? error);
  if (error.status === 401 || error.status === 403) process.exit(1); // A key that is not good does not become so.
  return pause(1000);
});
