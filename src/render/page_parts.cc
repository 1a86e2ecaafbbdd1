// Style and script of the page. Colours of classes are the page's own; those of the picture are in colours.cc.
#include "render/page.h"

namespace fairway::render {

std::string page_css() {
  return R"(:root{--paper:#fff;--ink:#18212b;--faint:#5c6773;--rule:#d5dbe1;--card:#fff;
--nv:#d6eed9;--pix:#d0ecec;--pxb:#dbe8fb;--phb:#e6e3fb;--node:#fbebcb;--sys:#fadbd6;--unknown:#eceff2;
--nvl:#3a8a43;--pixl:#0d8284;--pxbl:#2f77b8;--phbl:#6a55b5;--nodel:#b26a00;--sysl:#c22a26}
@media screen and (prefers-color-scheme:dark){:root{--paper:#11161c;--ink:#e7ecf1;--faint:#9aa7b4;--rule:#323c47;--card:#1b232c;
--nv:#1c4326;--pix:#124445;--pxb:#1a3757;--phb:#332d61;--node:#4f3a12;--sys:#5a241f;--unknown:#252c34;
--nvl:#58b565;--pixl:#35b5b2;--pxbl:#5ea5e2;--phbl:#9a84d6;--nodel:#f3a640;--sysl:#ff7d75}}
body{margin:0;padding:0 24px 48px;background:var(--paper);color:var(--ink);font:14px/1.45 "Helvetica Neue",Helvetica,Arial,"DejaVu Sans",sans-serif}
figure{margin:0 -24px;overflow-x:auto}
figure svg{max-width:100%;min-width:var(--least);height:auto;display:block}
h1{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
h2{font-size:16px;margin:28px 0 8px}
pre.summary{font:12px/1.5 ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;white-space:pre-wrap;margin:14px 0}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:12px}
.matrix th,.matrix td{padding:3px 8px;text-align:center;border:1px solid var(--paper);white-space:nowrap}
.matrix th{font-weight:600}
.matrix tbody th{text-align:right}
.matrix small{display:block;font-weight:400;font-size:10.5px;opacity:.8}
.matrix .c-self{color:var(--faint)}
.matrix tr.lit th{text-decoration:underline;text-decoration-thickness:2px}
.c-nv{background:var(--nv)}.c-pix{background:var(--pix)}.c-pxb{background:var(--pxb)}.c-phb{background:var(--phb)}
.c-node{background:var(--node)}.c-sys{background:var(--sys)}.c-unknown{background:var(--unknown)}
.key{font-size:12px;color:var(--faint)}
.key span{color:var(--ink);padding:2px 7px;border-radius:3px;white-space:nowrap}
.list td,.list th{padding:3px 12px 3px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule);font-weight:400}
.list th{font-weight:600;white-space:nowrap}
.list .yes{color:var(--nvl);font-weight:600}.list .no{color:var(--faint)}
ul{padding-left:18px}
li{margin:3px 0}
li.error b{color:var(--sysl)}li.warning b{color:var(--nodel)}.notes b{font-weight:600}
[data-node]{cursor:pointer}
[data-node]:focus{outline:none;stroke-width:3px}
svg [data-near]{stroke-width:3px!important;stroke-dasharray:none!important}
svg [data-near=nv]{stroke:var(--nvl)!important}svg [data-near=pix]{stroke:var(--pixl)!important}
svg [data-near=pxb]{stroke:var(--pxbl)!important}svg [data-near=phb]{stroke:var(--phbl)!important}
svg [data-near=node]{stroke:var(--nodel)!important}svg [data-near=sys]{stroke:var(--sysl)!important}
svg [data-near=self]{stroke:var(--ink)!important}
.badge{font-size:9px;font-weight:600;paint-order:stroke;stroke:var(--paper);stroke-width:4px;pointer-events:none}
#card{position:fixed;z-index:2;max-width:360px;background:var(--card);border:1px solid var(--rule);border-radius:6px;padding:10px 14px;box-shadow:0 4px 18px #0003;pointer-events:none;font-size:12px}
#card h3{margin:0 0 6px;font-size:13px}
#card dl{display:grid;grid-template-columns:auto 1fr;gap:2px 12px;margin:0}
#card dt{color:var(--faint)}#card dd{margin:0}
@media print{@page{size:A4 landscape;margin:12mm}body{padding:0}figure{margin:0;overflow:visible}figure svg{min-width:0;width:100%}
.key,#card{display:none!important}.wide{overflow:visible}.matrix{font-size:9px;width:100%}.matrix th,.matrix td{padding:1px 3px}.matrix small{font-size:7.5px}
h2{break-after:avoid}tr,li{break-inside:avoid}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)";
}

const char* page_script() {
  return R"(const card=document.getElementById('card');
const svg=document.querySelector('svg.machine');
const drawn=[...svg.querySelectorAll('[data-node]')];
let pinned=null;
for(const shape of drawn){const title=shape.querySelector('title');if(title){shape.setAttribute('aria-label',title.textContent);title.remove();}shape.setAttribute('tabindex','0');}
function clear(){
  card.hidden=true;
  for(const shape of drawn)delete shape.dataset.near;
  for(const badge of svg.querySelectorAll('.badge'))badge.remove();
  for(const row of document.querySelectorAll('tr.lit'))row.classList.remove('lit');
}
function badge(shape,text){
  const label=document.createElementNS('http://www.w3.org/2000/svg','text');
  label.setAttribute('class','badge');label.setAttribute('text-anchor','end');
  label.setAttribute('x',+shape.getAttribute('x')+ +shape.getAttribute('width')-4);
  label.setAttribute('y',+shape.getAttribute('y')+2);
  label.textContent=text;svg.append(label);
}
function compare(key){
  for(const matrix of matrices){
    const at=matrix.ends.indexOf(key);
    if(at<0)continue;
    for(const shape of drawn){
      const other=matrix.ends.indexOf(shape.dataset.node);
      if(other<0)continue;
      const [kind,name,rate]=matrix.cells[at*matrix.ends.length+other].split('|');
      shape.dataset.near=kind;
      if(kind!=='self')badge(shape,rate?name+' '+rate:name);
    }
  }
  for(const row of document.querySelectorAll('tr[data-ends]'))if(row.dataset.ends.split(' ').includes(key))row.classList.add('lit');
}
function show(shape,x,y){
  clear();
  const key=shape.dataset.node,template=document.getElementById('card-'+key);
  if(template){
    card.replaceChildren(template.content.cloneNode(true));
    card.hidden=false;
    const box=card.getBoundingClientRect();
    card.style.left=Math.max(8,Math.min(x+16,innerWidth-box.width-8))+'px';
    card.style.top=(y+20+box.height<innerHeight?y+20:Math.max(8,y-box.height-14))+'px';
  }
  compare(key);
}
for(const shape of drawn){
  shape.addEventListener('pointerenter',event=>{if(!pinned)show(shape,event.clientX,event.clientY);});
  shape.addEventListener('pointerleave',()=>{if(!pinned)clear();});
  shape.addEventListener('focus',()=>{const box=shape.getBoundingClientRect();show(shape,box.left,box.bottom);});
  shape.addEventListener('blur',()=>{pinned=null;clear();});
  shape.addEventListener('click',event=>{pinned=pinned===shape?null:shape;show(shape,event.clientX,event.clientY);});
}
addEventListener('keydown',event=>{if(event.key==='Escape'){pinned=null;clear();}});
)";
}

}  // namespace fairway::render
