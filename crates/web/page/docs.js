// Renders the OpenAPI document.

const make = (name, text, ...children) => {
  const element = document.createElement(name);
  if (text) element.textContent = text;
  element.append(...children);
  return element;
};

const resolve = (spec, schema) => {
  const name = schema?.$ref?.split('/').pop();
  return name ? spec.components.schemas[name] : schema;
};

const table = (rows) => make('table', '', ...rows.map((cells) => make('tr', '', ...cells.map((it) => make('td', it)))));

const operation = (spec, path, method, it) => {
  const label = make('span', method.toUpperCase());
  label.className = 'method';
  const parts = [make('summary', '', label, make('code', path), make('span', ` ${it.summary}`))];
  if (it.description) parts.push(make('p', it.description));
  if (it.parameters.length) {
    parts.push(make('h4', 'Parameters'), table(it.parameters.map((one) => [one.name, one.in, String(one.schema.type)])));
  }
  const body = it.requestBody?.content['application/json']?.schema;
  if (body) parts.push(make('h4', 'Body'), make('pre', JSON.stringify(resolve(spec, body), null, 2)));
  parts.push(make('h4', 'Responses'));
  parts.push(table(Object.entries(it.responses).map(([status, one]) => [status, one.description, Object.keys(one.content).join(', ')])));
  return make('details', '', ...parts);
};

const main = document.getElementById('doc');
try {
  const answer = await fetch('/openapi.json');
  if (!answer.ok) throw new Error(`The API document cannot be loaded (status ${answer.status}).`);
  const spec = await answer.json();
  const operations = Object.entries(spec.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, it]) => operation(spec, path, method, it)));
  main.replaceChildren(make('h1', `${spec.info.title} ${spec.info.version}`), make('p', spec.info.description), ...operations);
} catch (error) {
  main.replaceChildren(make('p', String(error.message)));
}
