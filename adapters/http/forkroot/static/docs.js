// Draws openapi.json: the routes by group, the fields of each body, and a request to copy.

const EXAMPLES = {
  "/v1/chat/completions": { messages: [{ role: "user", content: "What is the capital of France?" }] },
  "/v1/completions": { prompt: "The capital of France is", max_tokens: 8 },
  "/v1/responses": { input: "What is the capital of France?" },
  "/generate": { text: "The capital of France is", sampling_params: { max_new_tokens: 8 } },
  "/tokenize": { prompt: "The capital of France is" },
  "/detokenize": { tokens: [1, 2, 3] },
};

function element(name, content = "", className = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (typeof content === "string") made.textContent = content;
  else made.append(...content);
  return made;
}

function resolve(schema, root) {
  if (!schema?.$ref) return schema ?? {};
  return schema.$ref.slice(2).split("/").reduce((at, key) => at[key], root);
}

function typeOf(schema, root) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.anyOf) return schema.anyOf.map((one) => typeOf(one, root)).join(" | ");
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" | ");
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.type === "array") return `array of ${typeOf(schema.items ?? {}, root)}`;
  return Array.isArray(schema.type) ? schema.type.join(" | ") : schema.type ?? "any";
}

function fields(schema, root) {
  const options = schema.anyOf ?? [schema];
  const objects = options.map((one) => resolve(one, root)).filter((one) => one.properties);
  if (!objects.length) return [];
  const head = element("tr", ["field", "type", ""].map((name) => element("th", name)));
  const rows = Object.entries(objects[0].properties).map(([name, it]) => {
    const notes = [objects[0].required?.includes(name) ? "required" : "", it.description ?? ""];
    return element("tr", [
      element("td", name),
      element("td", typeOf(it, root)),
      element("td", notes.filter(Boolean).join("; ")),
    ]);
  });
  return [element("table", [head, ...rows])];
}

function command(path, method) {
  const url = new URL(path.slice(1), document.baseURI).href;
  if (method === "get") return `curl -s ${url}`;
  const body = path in EXAMPLES ? ` -H 'Content-Type: application/json' -d '${JSON.stringify(EXAMPLES[path])}'` : "";
  return `curl -s -X ${method.toUpperCase()} ${url}${body}`;
}

function route(path, method, operation, root) {
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  const summary = element("summary", [
    element("b", method.toUpperCase(), "method"),
    element("code", path),
    element("span", operation.summary ?? ""),
  ]);
  const parts = operation.description ? [element("p", operation.description)] : [];
  if (body) parts.push(...fields(resolve(body, root), root));
  parts.push(element("pre", command(path, method)));
  return element("details", [summary, element("div", parts, "body")]);
}

function group(path) {
  if (path.startsWith("/v1/forkroot") || path.startsWith("/v1/prefixes")) return "forkroot";
  if (path.startsWith("/v1/")) return "OpenAI";
  return "SGLang, tokenizer and operation";
}

const main = document.getElementById("routes");
try {
  const answer = await fetch("openapi.json");
  if (!answer.ok) throw new Error(`openapi.json: status ${answer.status}`);
  const root = await answer.json();
  const groups = new Map();
  for (const [path, methods] of Object.entries(root.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const name = group(path);
      groups.set(name, [...(groups.get(name) ?? []), route(path, method, operation, root)]);
    }
  }
  main.replaceChildren(...[...groups].flatMap(([name, drawn]) => [element("h2", name), ...drawn]));
} catch (error) {
  main.replaceChildren(element("p", `The routes cannot be shown: ${error.message}`));
}
